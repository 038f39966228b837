package communicator

import (
	"encoding/json"
	"net"
	"runtime"

	"golang.org/x/sys/unix"
)

// Version of the meeting's messages and of the layout of windows.
const Version = 3

// note is every message of a meeting. Hello carries the descriptors of the
// sender's window and process; so does the introduction of each member.
type note struct {
	Version   int    `json:",omitempty"`
	Job       string `json:",omitempty"`
	Rank      int
	Config    *terms `json:",omitempty"` // hello
	Member    Member
	Grant     grant
	Arena     int    `json:",omitempty"` // bytes that the member lends, with a third descriptor
	Blind     bool   `json:",omitempty"` // answer: this rank cannot map the arenas
	Secret    string `json:",omitempty"` // go
	Lend      bool   `json:",omitempty"` // go: all ranks see the arenas of all
	Table     string `json:",omitempty"` // go: the table that all ranks choose by
	Error     string `json:",omitempty"`
	ErrorCode Code   `json:",omitempty"`
}

// terms are what all ranks must have configured alike.
type terms struct {
	Size, Staging       int
	Algorithm, Protocol string
}

// grant is what a rank's control group still grants it.
type grant struct {
	Group     string
	Available int64
}

func codeOf(err error) Code {
	if e, ok := err.(*Error); ok {
		return e.Code
	}
	return System
}

func write(conn *net.UnixConn, n note, fds ...int) error {
	text, err := json.Marshal(n)
	if err != nil {
		return err
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	_, _, err = conn.WriteMsgUnix(text, rights, nil)
	runtime.KeepAlive(fds)
	return err
}

func read(conn *net.UnixConn) (n note, fds []int, err error) {
	text := make([]byte, 64<<10)
	rights := make([]byte, unix.CmsgSpace(3*4))
	size, rsize, _, _, err := conn.ReadMsgUnix(text, rights)
	if err != nil {
		return n, nil, err
	}
	if messages, err := unix.ParseSocketControlMessage(rights[:rsize]); err == nil {
		for i := range messages {
			if got, err := unix.ParseUnixRights(&messages[i]); err == nil {
				fds = append(fds, got...)
			}
		}
	}
	if size == 0 {
		closeAll(fds)
		return n, nil, net.ErrClosed
	}
	if err := json.Unmarshal(text[:size], &n); err != nil {
		closeAll(fds)
		return n, nil, err
	}
	return n, fds, nil
}
