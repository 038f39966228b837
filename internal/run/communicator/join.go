package communicator

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ringlane/internal/hardware/reduce"
	"ringlane/internal/hardware/sys"
	"ringlane/internal/hardware/window/shm"
	"ringlane/internal/logic/collective"
	"ringlane/internal/model/bytesize"
)

// grace is how much longer than the deadline a rank waits for rank 0 to say who
// is missing, once it is connected.
const grace = 3 * time.Second

// Join meets the other ranks of cfg.Job and returns when all have joined, or
// with an error that names those that have not.
func Join(cfg Config) (*Comm, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	return join(cfg, make([]acquaintance, cfg.Size))
}

func join(cfg Config, known []acquaintance) (*Comm, error) {
	l, err := newLayout(cfg.Size, cfg.Staging)
	if err != nil {
		return nil, err
	}
	if err := overrides(&cfg); err != nil {
		return nil, err
	}
	kernels, err := reduce.Select(cfg.Reduce)
	if err != nil {
		return nil, failf(Argument, "join: RINGLANE_REDUCE: %v", err)
	}
	j := &joining{cfg: cfg, layout: l, known: known, deadline: time.Now().Add(cfg.Timeout), peers: make([]peer, cfg.Size)}
	secret := ""
	if cfg.Rank == 0 {
		if j.table, err = cfg.chooseBy(); err != nil {
			return nil, err
		}
	}
	if err := j.own(); err != nil {
		j.abandon()
		return nil, err
	}
	switch {
	case cfg.Size == 1:
		secret = newSecret()
	case cfg.Rank == 0:
		secret, err = j.host()
	default:
		secret, err = j.visit()
	}
	if err != nil {
		j.abandon()
		return nil, err
	}
	if j.blind {
		j.arena = nil
	}
	c := newComm(cfg, l, secret, j.peers, j.arena, kernels)
	c.table = j.table
	c.cfg.table = &c.table
	return c, nil
}

func newSecret() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

type joining struct {
	cfg      Config
	layout   layout
	known    []acquaintance
	deadline time.Time
	peers    []peer
	grants   []grant
	arena    *shm.Arena // what this rank lends
	arenas   []int      // bytes that each rank lends
	table    collective.Table
	blind    bool // some rank lends nothing, or cannot see what another lends
}

// own makes this rank's window and handle.
func (j *joining) own() error {
	limit := sys.Grants{}.Memory()
	if err := j.affordable(limit.Group, limit.Available, 1); err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	w, err := shm.Create("ringlane", j.layout.bytes, j.cfg.Staging)
	if err != nil {
		return failf(Memory, "join: rank %d cannot have %s of staging memory: %v (lower RINGLANE_STAGING, or raise the limit that ulimit -v shows)",
			j.cfg.Rank, mebibytes(int64(j.layout.bytes)), err)
	}
	if sys.Nodes() > 1 {
		// Private channels are written by peers: the first touch must be ours.
		if err := w.Populate(); err != nil {
			w.Close()
			return failf(Memory, "join: %v (lower RINGLANE_STAGING)", err)
		}
	}
	cpus := ""
	if set, err := sys.Affinity(); err == nil {
		cpus = set.String()
	}
	process, err := sys.Self()
	if err != nil {
		w.Close()
		return failf(System, "join: %v", err)
	}
	j.peers[j.cfg.Rank] = peer{Member: Member{os.Getpid(), host, cpus}, window: w, process: process, control: controlOf(w.Bytes)}
	j.grants = make([]grant, j.cfg.Size)
	j.grants[j.cfg.Rank] = grant{limit.Group, limit.Available}
	j.arenas = make([]int, j.cfg.Size)
	if j.arena, err = arena(); errors.Is(err, Argument) {
		return err
	} else if err != nil {
		j.blind = true // address space is short: do without
		return nil
	}
	j.arenas[j.cfg.Rank] = len(j.arena.Window().Bytes)
	return nil
}

// affordable compares the staging memory of n ranks with what a control group,
// or the machine, still grants. Memory is taken as it is touched, and beyond
// the grant the kernel would kill a rank in the middle of a collective.
func (j *joining) affordable(group string, available int64, n int) error {
	need := int64(n) * int64(j.layout.bytes)
	if need <= available {
		return nil
	}
	by := "this machine"
	if group != "" {
		by = "the memory control group " + group
	}
	return failf(Memory, "join: %d × %s of staging memory are needed and %s grants %s more (lower RINGLANE_STAGING, now %s a rank, or raise the limit)",
		n, mebibytes(int64(j.layout.bytes)), by, mebibytes(available), bytesize.Format(j.cfg.Staging))
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

func (j *joining) abandon() {
	for _, p := range j.peers {
		if p.window != nil {
			p.window.Close()
			p.process.Close()
			if p.arena != nil {
				p.arena.Close()
			}
		}
	}
}

func (j *joining) hello() note {
	return note{
		Version: Version, Job: j.cfg.Job, Rank: j.cfg.Rank,
		Config: &terms{j.cfg.Size, j.cfg.Staging, j.cfg.Algorithm, j.cfg.Protocol},
		Member: j.peers[j.cfg.Rank].Member,
		Grant:  j.grants[j.cfg.Rank],
		Arena:  j.arenas[j.cfg.Rank],
	}
}

// descriptors are what introduces a rank to others: its window, its process
// and, if it has one, its arena.
func (j *joining) descriptors(rank int) []int {
	p := &j.peers[rank]
	fds := []int{p.window.FD(), p.process.FD()}
	switch {
	case p.arena != nil:
		fds = append(fds, p.arena.FD())
	case rank == j.cfg.Rank && j.arena != nil:
		fds = append(fds, j.arena.Window().FD())
	}
	return fds
}

// admit takes over what another rank handed out.
func (j *joining) admit(rank int, m Member, lends int, fds []int) error {
	want := 2
	if lends > 0 {
		want++
	}
	if len(fds) != want {
		closeAll(fds)
		return failf(System, "join: rank %d handed over %d descriptors, %d are needed (raise ulimit -n)", rank, len(fds), want)
	}
	j.arenas[rank] = lends
	var lent *shm.Window
	if lends > 0 {
		var err error
		if lent, err = shm.Open(fds[2], lends); err != nil {
			j.blind = true // address space is short: do without
		}
	} else {
		j.blind = true
	}
	w, err := shm.Open(fds[0], j.layout.bytes)
	if err != nil {
		unix.Close(fds[1])
		if lent != nil {
			lent.Close()
		}
		return failf(Memory, "join: rank %d cannot map the window of rank %d: %v (lower RINGLANE_STAGING)", j.cfg.Rank, rank, err)
	}
	j.peers[rank] = peer{Member: m, window: w, process: sys.ProcessFromFD(fds[1]), control: controlOf(w.Bytes), arena: lent}
	return nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// visit joins as a rank other than 0.
func (j *joining) visit() (secret string, err error) {
	m := meetingFor(&j.cfg)
	conn, err := m.dial(j.deadline, func() error { return j.ended(0) })
	if err != nil {
		return "", err
	}
	if conn == nil {
		return "", failf(Timeout, "join: rank 0%s did not open the meeting in %s within %v (is it running, with the same job, user and temporary directory? raise RINGLANE_TIMEOUT if it is only slow)",
			j.whereabouts(0), m.dir, j.cfg.Timeout)
	}
	defer conn.Close()
	if err := sameUser(conn); err != nil {
		return "", err
	}
	conn.SetDeadline(j.deadline.Add(grace))
	if err := write(conn, j.hello(), j.descriptors(j.cfg.Rank)...); err != nil {
		return "", failf(System, "join: cannot greet rank 0: %v", err)
	}
	for range j.cfg.Size - 1 {
		n, fds, err := j.read(conn)
		if err != nil {
			return "", err
		}
		if err := j.admit(n.Rank, n.Member, n.Arena, fds); err != nil {
			write(conn, note{Rank: j.cfg.Rank, Error: err.Error(), ErrorCode: codeOf(err)})
			return "", err
		}
	}
	if err := write(conn, note{Rank: j.cfg.Rank, Blind: j.blind}); err != nil {
		return "", failf(System, "join: cannot answer rank 0: %v", err)
	}
	n, _, err := j.read(conn)
	if err != nil {
		return "", err
	}
	j.blind = !n.Lend
	if j.table, err = collective.ParseTable(n.Table); err != nil {
		return "", failf(System, "join: the table of rank 0: %v", err)
	}
	return n.Secret, nil
}

// read takes the next note from rank 0.
func (j *joining) read(conn *net.UnixConn) (note, []int, error) {
	n, fds, err := read(conn)
	switch {
	case err == nil && n.Error != "":
		closeAll(fds)
		return n, nil, &Error{n.ErrorCode, n.Error}
	case err == nil:
		return n, fds, nil
	case os.IsTimeout(err):
		return n, nil, failf(Timeout, "join: rank 0%s has stopped answering (look at that process)", j.whereabouts(0))
	}
	return n, nil, failf(Dead, "join: rank 0%s ended while the others were joining (look at its own output)", j.whereabouts(0))
}

// guest is a rank at the meeting, as rank 0 sees it.
type guest struct {
	conn  *net.UnixConn
	hello note
	fds   []int
	err   error
}

// host joins as rank 0.
func (j *joining) host() (secret string, err error) {
	m := meetingFor(&j.cfg)
	listener, err := m.listen()
	if err != nil {
		if m.made {
			m.close()
		}
		return "", err
	}
	guests := make([]*guest, j.cfg.Size)
	defer func() {
		listener.Close()
		m.close()
		for _, g := range guests {
			if g != nil {
				g.conn.Close()
				closeAll(g.fds)
			}
		}
	}()
	fail := func(err error) (string, error) {
		for _, g := range guests {
			if g != nil {
				g.conn.SetDeadline(time.Now().Add(grace))
				write(g.conn, note{Error: err.Error(), ErrorCode: codeOf(err)})
			}
		}
		return "", err
	}
	if err := j.receive(listener, guests); err != nil {
		return fail(err)
	}
	if err := j.budget(); err != nil {
		return fail(err)
	}
	for r, g := range guests {
		if g == nil {
			continue
		}
		err := j.admit(r, g.hello.Member, g.hello.Arena, dup(g.fds))
		if err != nil {
			return fail(err)
		}
	}
	for to, g := range guests {
		if g == nil {
			continue
		}
		g.conn.SetDeadline(time.Now().Add(grace + time.Until(j.deadline)))
		for r := range j.peers {
			if r == to {
				continue
			}
			p := &j.peers[r]
			lends, fds := j.arenas[r], j.descriptors(r)
			if len(fds) == 2 {
				lends = 0
			}
			if err := write(g.conn, note{Rank: r, Member: p.Member, Arena: lends}, fds...); err != nil {
				return fail(j.lost(to))
			}
		}
	}
	for r, g := range guests {
		if g == nil {
			continue
		}
		n, _, err := read(g.conn)
		if err != nil {
			return fail(j.lost(r))
		}
		if n.Error != "" {
			return fail(&Error{n.ErrorCode, n.Error})
		}
		j.blind = j.blind || n.Blind
	}
	secret = newSecret()
	for _, g := range guests {
		if g != nil {
			// A rank that is lost now is found out by its process handle.
			write(g.conn, note{Secret: secret, Lend: !j.blind, Table: j.table.String()})
		}
	}
	return secret, nil
}

func dup(fds []int) []int {
	var copies []int
	for _, fd := range fds {
		if c, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0); err == nil {
			copies = append(copies, c)
		}
	}
	return copies
}

func (j *joining) lost(rank int) error {
	return failf(Dead, "join: rank %d%s ended while joining (look at its own output)", rank, j.whereabouts(rank))
}

// receive fills guests with the other ranks as they come.
func (j *joining) receive(listener *net.UnixListener, guests []*guest) error {
	arrivals := make(chan *guest)
	quit := make(chan struct{})
	defer close(quit)
	go func() {
		for {
			conn, err := listener.AcceptUnix()
			if err != nil {
				return
			}
			// A silent caller must not hold the others up.
			go func() {
				g := &guest{conn: conn}
				conn.SetDeadline(j.deadline)
				if g.err = sameUser(conn); g.err == nil {
					g.hello, g.fds, g.err = read(conn)
				}
				select {
				case arrivals <- g:
				case <-quit:
					closeAll(g.fds)
					conn.Close()
				}
			}()
		}
	}()
	deadline := time.NewTimer(time.Until(j.deadline))
	defer deadline.Stop()
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for missing := j.cfg.Size - 1; missing > 0; {
		select {
		case g := <-arrivals:
			if err := j.refuse(g, guests); err != nil {
				write(g.conn, note{Error: err.Error(), ErrorCode: codeOf(err)})
				g.conn.Close()
				closeAll(g.fds)
				continue
			}
			r := g.hello.Rank
			guests[r] = g
			j.known[r].Member = g.hello.Member
			j.grants[r] = g.hello.Grant
			missing--
		case <-look.C:
			for r := range guests {
				if guests[r] == nil && r != 0 {
					if err := j.ended(r); err != nil {
						return err
					}
				}
			}
		case <-deadline.C:
			return j.missing(guests)
		}
	}
	return nil
}

// refuse says why a caller is not one of the ranks that are waited for.
func (j *joining) refuse(g *guest, guests []*guest) error {
	h := &g.hello
	own := terms{j.cfg.Size, j.cfg.Staging, j.cfg.Algorithm, j.cfg.Protocol}
	switch {
	case g.err != nil:
		return g.err
	case h.Version != Version:
		return failf(Mismatch, "join: rank %d speaks version %d, rank 0 version %d (install the same Ringlane for all ranks)", h.Rank, h.Version, Version)
	case h.Job != j.cfg.Job:
		return failf(Mismatch, "join: rank %d belongs to another job (give two jobs two names in RINGLANE_JOB)", h.Rank)
	case h.Config == nil || h.Rank <= 0 || h.Rank >= j.cfg.Size:
		return failf(Mismatch, "join: rank %d is outside 1 to %d", h.Rank, j.cfg.Size-1)
	case guests[h.Rank] != nil:
		return failf(Mismatch, "join: rank %d has joined already, as pid %d on %s (start each rank once)", h.Rank, guests[h.Rank].hello.Member.PID, guests[h.Rank].hello.Member.Host)
	case *h.Config != own:
		return failf(Mismatch, "join: rank %d is set up with %+v, rank 0 with %+v (give all ranks the same RINGLANE variables)", h.Rank, *h.Config, own)
	}
	return nil
}

// missing says which ranks have not come in time.
func (j *joining) missing(guests []*guest) error {
	var names []string
	for r := 1; r < j.cfg.Size; r++ {
		if guests[r] == nil {
			names = append(names, fmt.Sprintf("rank %d%s", r, j.whereabouts(r)))
		}
	}
	return failf(Timeout, "join: %d of %d ranks came within %v; missing: %s (look at their output; raise RINGLANE_TIMEOUT if they are only slow)",
		j.cfg.Size-len(names), j.cfg.Size, j.cfg.Timeout, strings.Join(names, ", "))
}

// ended is an error if a rank that has not come can come no more.
func (j *joining) ended(rank int) error {
	if e := j.known[rank].ended; e != nil && e() {
		return failf(Dead, "join: rank %d%s has ended (look at its own output)", rank, j.whereabouts(rank))
	}
	return nil
}

// whereabouts is what is known of a rank's process, in parentheses.
func (j *joining) whereabouts(rank int) string {
	k := j.known[rank]
	if k.PID == 0 {
		// Not before it is needed: the launcher writes it when all ranks run.
		if k.Member = launched(j.cfg.Rendezvous)[rank]; k.PID == 0 {
			return ""
		}
	}
	state := ""
	if host, err := os.Hostname(); err == nil && host == k.Host {
		if state = sys.ProcessState(k.PID); state == "" {
			state = "ended"
		}
		state = ", " + state
	}
	return fmt.Sprintf(" (pid %d on %s%s)", k.PID, k.Host, state)
}

// budget checks the staging memory of all ranks that share a control group.
func (j *joining) budget() error {
	ranks := map[string]int{}
	least := map[string]int64{}
	for _, g := range j.grants {
		if ranks[g.Group]++; ranks[g.Group] == 1 || g.Available < least[g.Group] {
			least[g.Group] = g.Available
		}
	}
	for group, n := range ranks {
		if err := j.affordable(group, least[group], n); err != nil {
			return err
		}
	}
	return nil
}

func sameUser(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return failf(System, "join: %v", err)
	}
	var cred *unix.Ucred
	if cerr := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); cerr != nil {
		err = cerr
	}
	if err != nil {
		return failf(System, "join: cannot tell who is at the other end: %v", err)
	}
	if int(cred.Uid) != os.Geteuid() {
		return failf(System, "join: process %d of user %d is at the other end, this one runs as user %d (run all ranks as one user)", cred.Pid, cred.Uid, os.Geteuid())
	}
	return nil
}
