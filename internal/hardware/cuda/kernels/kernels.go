// Package kernels holds what Ringlane runs on GPUs: kernels in CUDA C++, and the
// PTX that tools/ptx.py makes of them. A driver compiles PTX for its GPU when it
// loads it, so neither a compiler nor a CUDA toolkit is needed to run or to build.
//
// build.txt lists the modules: one for each element type, and those that know
// bytes only.
package kernels

import (
	"bytes"
	"compress/gzip"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

//go:embed ptx
var archive embed.FS

// PTX returns the text of a module for a GPU of the given compute capability,
// such as {9, 0}: of what there is, that for the highest capability that is not
// above the GPU's. A GPU runs code made for an older one, so a module that needs
// nothing new is there for the oldest only.
func PTX(module string, capability [2]int) ([]byte, error) {
	text, err := find(archive, module, capability)
	if err != nil {
		return nil, fmt.Errorf("find GPU kernels %q: %w", module, err)
	}
	return text, nil
}

func find(archive fs.FS, module string, capability [2]int) ([]byte, error) {
	targets, err := targets(archive)
	if err != nil {
		return nil, err
	}
	if len(targets) == 0 {
		return nil, errors.New("there are none (run make gen)")
	}
	above := slices.IndexFunc(targets, func(target int) bool { return target > 10*capability[0]+capability[1] })
	if above == 0 {
		return nil, fmt.Errorf("the GPU has compute capability %d.%d (%d.%d or newer is needed)",
			capability[0], capability[1], targets[0]/10, targets[0]%10)
	}
	if above > 0 {
		targets = targets[:above]
	}
	for _, target := range slices.Backward(targets) {
		text, err := unpack(archive, fmt.Sprintf("ptx/compute_%d/%s.ptx.gz", target, module))
		if !errors.Is(err, fs.ErrNotExist) {
			return text, err
		}
	}
	return nil, errors.New("there is no such module")
}

// targets returns what there is PTX for, in rising order: 90 is compute
// capability 9.0.
func targets(archive fs.FS) ([]int, error) {
	folders, err := fs.Glob(archive, "ptx/compute_*")
	if err != nil {
		return nil, err
	}
	found := make([]int, len(folders))
	for i, folder := range folders {
		if found[i], err = strconv.Atoi(strings.TrimPrefix(path.Base(folder), "compute_")); err != nil {
			return nil, fmt.Errorf("%s: %w", folder, err)
		}
	}
	slices.Sort(found)
	return found, nil
}

// Follows reports whether a kernel of a module waits itself for what comes before it
// in the stream (machine.cuh): it may be launched early.
func Follows(ptx []byte, kernel string) bool {
	_, body, found := bytes.Cut(ptx, []byte(".entry "+kernel+"("))
	body, _, _ = bytes.Cut(body, []byte(".entry "))
	return found && bytes.Contains(body, []byte("griddepcontrol.wait"))
}

func unpack(archive fs.FS, name string) ([]byte, error) {
	file, err := archive.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	packed, err := gzip.NewReader(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	text, err := io.ReadAll(packed)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return text, nil
}
