package main

import (
	"os"

	"github.com/spf13/pflag"

	"ringlane/internal/run/launch"
)

const bindVariable = "RINGLANE_BIND"

// bindFlag is --bind, for which RINGLANE_BIND stands where it is not given.
type bindFlag launch.Bind

func (b *bindFlag) add(flags *pflag.FlagSet) {
	flags.Var(b, "bind", "keep each rank on cores of its own: `auto` (if there are enough), cores (or fail) or none; also --bind-to and "+bindVariable)
}

func (b *bindFlag) Set(text string) error {
	parsed, err := launch.ParseBind(text)
	*b = bindFlag(parsed)
	return err
}

func (b *bindFlag) String() string { return string(*b) }

func (b *bindFlag) Type() string { return "string" }

// choice is what the flag, or else the variable, says.
func (b *bindFlag) choice() (launch.Bind, error) {
	text := os.Getenv(bindVariable)
	if *b != "" || text == "" {
		return launch.Bind(*b), nil
	}
	choice, err := launch.ParseBind(text)
	if err != nil {
		return "", usagef("%s: %v", bindVariable, err)
	}
	return choice, nil
}
