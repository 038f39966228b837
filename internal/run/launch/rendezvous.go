package launch

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"ringlane/internal/run/communicator"
)

// longestBase keeps the sockets that ranks open in the rendezvous directory
// within the 107 bytes of a Unix socket's address.
const longestBase = 60

// newName returns a name that no other job has.
func newName() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails: see crypto/rand
	return hex.EncodeToString(b[:])
}

// makeRendezvous makes the private directory in which the ranks of a job meet:
// under $XDG_RUNTIME_DIR, which the system clears at logout, or else under the
// temporary directory. announce learns its name before it exists, so that
// whoever removes it knows of it at every moment.
func makeRendezvous(job string, announce func(directory string)) (string, error) {
	var failed error
	for _, base := range []string{os.Getenv("XDG_RUNTIME_DIR"), os.TempDir(), "/tmp"} {
		if !filepath.IsAbs(base) || len(base) > longestBase {
			continue
		}
		directory := filepath.Join(base, "ringlane-"+job)
		announce(directory)
		if err := os.Mkdir(directory, 0o700); err != nil {
			failed = err
			continue
		}
		// A umask may have taken the owner's own rights away.
		if err := os.Chmod(directory, 0o700); err != nil {
			return "", err
		}
		return directory, nil
	}
	return "", fmt.Errorf("cannot make a private directory for the ranks to meet in: %w (set TMPDIR to a short path that you can write to)", failed)
}

// writeRanks writes ranks.json, from which an error about a rank that never
// joined takes that rank's pid and host. It appears whole or not at all.
func writeRanks(directory string, pids []int) error {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	places := make(map[string]communicator.Member, len(pids))
	for rank, pid := range pids {
		places[strconv.Itoa(rank)] = communicator.Member{PID: pid, Host: host}
	}
	text, err := json.Marshal(places)
	if err != nil {
		return err
	}
	part := filepath.Join(directory, "ranks.json.part")
	if err := os.WriteFile(part, text, 0o600); err != nil {
		return err
	}
	return os.Rename(part, filepath.Join(directory, "ranks.json"))
}

// freePort returns a TCP port of the loopback interface that nobody uses now.
func freePort() (int, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("cannot find a free port for MASTER_PORT: %w (is the loopback interface up?)", err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}
