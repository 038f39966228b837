package main

import (
	"bytes"
	"os"
	"testing"
)

// docs/topo.svg is what topo draws of a machine in testdata (`make gen`).
func TestPictureIsUpToDate(t *testing.T) {
	want, err := os.ReadFile("../../docs/topo.svg")
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if status := execute([]string{"topo", "--format", "svg", "--from", "../../testdata/machines/4gpu-2switch-redirect"}, &got, os.Stderr); status != 0 {
		t.Fatalf("status %d", status)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Error("docs/topo.svg is not what topo draws (run `make gen`, and look at it)")
	}
}
