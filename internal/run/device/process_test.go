package device

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	os.Setenv("XDG_CACHE_HOME", "/nonexistent") // what was measured here is no part of a test
	if os.Getenv("RINGLANE_EMULATOR") == "" {
		os.Setenv("RINGLANE_EMULATOR", "gpus=3,sms=16,threads=256,memory=512M")
	}
	os.Exit(m.Run())
}
