package communicator

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"ringlane/internal/hardware/sys"
)

// meeting is the place where the ranks of one communicator find each other: a
// socket in a private directory, with no trace left once all have joined.
type meeting struct {
	dir    string
	socket string
	made   bool // this rank made the directory
}

// meetingFor names the place: a function of the job alone, so that all ranks
// compute the same and no two jobs do.
func meetingFor(cfg *Config) meeting {
	sum := sha256.Sum256(fmt.Appendf(nil, "ringlane\x00%d\x00%s", cfg.Size, cfg.Job))
	name := hex.EncodeToString(sum[:8])
	m := meeting{dir: cfg.Rendezvous}
	if m.dir == "" {
		m.dir = filepath.Join(os.TempDir(), fmt.Sprintf("ringlane-%d-%s", os.Geteuid(), name))
	}
	m.socket = name + ".sock"
	return m
}

// private checks that nobody else can reach into the directory.
func (m *meeting) private() error {
	info, err := os.Lstat(m.dir)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Lstat(m.dir, &st); err != nil {
		return err
	}
	switch {
	case !info.IsDir():
		return failf(System, "join: %s is not a directory (RINGLANE_RENDEZVOUS must name one)", m.dir)
	case int(st.Uid) != os.Geteuid():
		return failf(System, "join: %s belongs to user %d, this process runs as %d (name a directory of your own in RINGLANE_RENDEZVOUS)", m.dir, st.Uid, os.Geteuid())
	case info.Mode().Perm()&0o077 != 0:
		return failf(System, "join: %s has mode %#o, so that others could reach into it (chmod 700 it)", m.dir, info.Mode().Perm())
	}
	return nil
}

// address gives the socket a path that fits sockaddr_un however long the
// directory's name is, by way of a descriptor of the directory.
func (m *meeting) address() (path string, done func(), err error) {
	path = filepath.Join(m.dir, m.socket)
	if len(path) < 104 {
		return path, func() {}, nil
	}
	fd, err := unix.Open(m.dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", nil, &fs.PathError{Op: "open", Path: m.dir, Err: err}
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", fd, m.socket), func() { unix.Close(fd) }, nil
}

// listen opens the meeting as rank 0.
func (m *meeting) listen() (*net.UnixListener, error) {
	err := os.Mkdir(m.dir, 0o700)
	if err == nil {
		m.made = true
	} else if !errors.Is(err, fs.ErrExist) {
		return nil, failf(System, "join: the rendezvous directory cannot be made: %v (set RINGLANE_RENDEZVOUS or TMPDIR to a writable place)", err)
	}
	if err := m.private(); err != nil {
		return nil, err
	}
	path, done, err := m.address()
	if err != nil {
		return nil, failf(System, "join: %v", err)
	}
	defer done()
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if errors.Is(err, unix.EADDRINUSE) {
		// A rank 0 that was killed in the middle of joining leaves its socket.
		if c, derr := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"}); derr == nil {
			c.Close()
			return nil, failf(Argument, "join: another process is rank 0 of this job already (start each rank once, and give two jobs two names in RINGLANE_JOB)")
		}
		os.Remove(filepath.Join(m.dir, m.socket))
		l, err = net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	}
	if err != nil {
		return nil, failf(System, "join: cannot listen in %s: %v", m.dir, err)
	}
	l.SetUnlinkOnClose(false) // by the real path, in close
	return l, nil
}

// close removes every trace of the meeting.
func (m *meeting) close() {
	os.Remove(filepath.Join(m.dir, m.socket))
	if m.made {
		os.Remove(m.dir)
	}
}

// dial waits for rank 0 to open the meeting. gone says whether waiting has
// become pointless.
func (m *meeting) dial(deadline time.Time, gone func() error) (*net.UnixConn, error) {
	for pause := time.Millisecond; ; pause = min(2*pause, 25*time.Millisecond) {
		err := m.private()
		var bad *Error
		if errors.As(err, &bad) {
			return nil, bad
		}
		if err == nil {
			path, done, aerr := m.address()
			if aerr == nil {
				var c *net.UnixConn
				c, err = net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
				done()
				if err == nil {
					return c, nil
				}
			}
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.EAGAIN) {
			return nil, failf(System, "join: cannot reach rank 0 in %s: %v", m.dir, err)
		}
		if err := gone(); err != nil {
			return nil, err
		}
		if time.Now().After(deadline) {
			return nil, nil
		}
		sys.Nap(pause)
	}
}

// acquaintance is a rank that is known before it joins.
type acquaintance struct {
	Member
	ended func() bool // nil if that cannot be told
}

// launched reads what the launcher left about its ranks in the rendezvous
// directory, so that an error can name a process that never came.
func launched(rendezvous string) (ranks map[int]Member) {
	text, err := os.ReadFile(filepath.Join(rendezvous, "ranks.json"))
	if rendezvous == "" || err != nil || json.Unmarshal(text, &ranks) != nil {
		return nil
	}
	return ranks
}
