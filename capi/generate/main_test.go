package main

import (
	"bytes"
	"os"
	"testing"
)

func TestFilesAreUpToDate(t *testing.T) {
	header, entry, err := generate("../capi_unsafe.go", "../device_unsafe.go")
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string][]byte{"../../include/ringlane.h": header, "../entry_gen.c": entry} {
		got, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s does not fit capi/*_unsafe.go (%v; run `make gen`)", path, err)
		}
	}
}
