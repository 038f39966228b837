package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// build says which ringlane this is.
type build struct {
	Version  string `json:"version"`            // of the module, or "(devel)"
	Commit   string `json:"commit,omitempty"`   // as the build recorded it
	Time     string `json:"time,omitempty"`     // of the commit, RFC 3339
	Modified bool   `json:"modified,omitempty"` // the tree differed from the commit
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
}

func readBuild() build {
	b := build{Version: "(devel)", Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if info.Main.Version != "" {
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

func (b build) String() string {
	text := "ringlane " + b.Version
	if b.Commit != "" {
		text += " commit " + b.Commit[:min(12, len(b.Commit))]
		if b.Modified {
			text += " (modified)"
		}
	}
	return fmt.Sprintf("%s, %s %s/%s", text, b.Go, b.OS, b.Arch)
}

func newVersionCommand() *cobra.Command {
	var asJSON bool
	command := &cobra.Command{
		Use:   "version",
		Short: "Say which ringlane this is",
		Args:  noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			if !asJSON {
				_, err := fmt.Fprintln(command.OutOrStdout(), readBuild())
				return err
			}
			encoder := json.NewEncoder(command.OutOrStdout())
			encoder.SetIndent("", "  ")
			return encoder.Encode(readBuild())
		},
	}
	command.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return command
}
