// Command gopeer is bench/peers.c over Ringlane's Go package: the same commands,
// board, loop and checks, so that the two differ in what a program in Go calls
// instead of the C interface. Its own overhead inside the clock, of reading the
// clock, is no less than that of C.
//
//	gopeer DIRECTORY RANKS SHARES
package main

import (
	"bufio"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ringlane"
	"ringlane/internal/model/cpu"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "gopeer:", err)
		os.Exit(1)
	}
}

// rank is this process among the ranks that are measured.
type rank struct {
	comm    *ringlane.Comm
	number  int
	ranks   int
	board   *board
	answers *os.File
	born    time.Time
}

func run(args []string) error {
	if len(args) != 3 {
		return errors.New("arguments: DIRECTORY RANKS SHARES")
	}
	directory, shares := args[0], args[2]
	comm, err := ringlane.Join(ringlane.Config{})
	if err != nil {
		return err
	}
	r := &rank{comm: comm, number: comm.Rank(), ranks: comm.Size(), born: time.Now()}
	if args[1] != strconv.Itoa(r.ranks) {
		return fmt.Errorf("arguments: %s ranks, there are %d", args[1], r.ranks)
	}
	crowded := shares == "none"
	if !crowded {
		if err := pin(strings.Split(shares, ":"), r.number); err != nil {
			return err
		}
	}
	if r.board, err = openBoard(filepath.Join(directory, "board"), r.number, r.ranks, crowded); err != nil {
		return err
	}
	if r.answers, err = os.OpenFile(filepath.Join(directory, "reply"), os.O_WRONLY, 0); err != nil {
		return err
	}
	commands, err := os.Open(filepath.Join(directory, strconv.Itoa(r.number)))
	if err != nil {
		return err
	}
	r.board.barrier() // all have opened their files, which may go now
	if r.number == 0 {
		if _, err := fmt.Fprintln(r.answers, version()); err != nil {
			return err
		}
	}
	lines := bufio.NewScanner(commands)
	for lines.Scan() {
		if err := r.command(lines.Text()); err != nil {
			return err
		}
	}
	return errors.Join(lines.Err(), comm.Close())
}

func version() string {
	text := runtime.Version()
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		text = info.Main.Version + ", " + text
	}
	return text
}

// pin keeps a rank in its share of the CPUs: the thread that calls on the first
// of them, those of the runtime wherever there is room.
func pin(shares []string, number int) error {
	if number >= len(shares) {
		return fmt.Errorf("arguments: no share for rank %d", number)
	}
	list, err := cpu.Parse(shares[number])
	if err != nil {
		return err
	}
	var share, first unix.CPUSet
	for _, id := range list {
		share.Set(id)
	}
	first.Set(list[0])
	if len(list) > 1 {
		// A locked thread starts no others, so that they inherit the share. With
		// one CPU there is nothing to tell apart.
		runtime.LockOSThread()
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, thread := range threads {
		id, err := strconv.Atoi(thread.Name())
		if err != nil {
			return err
		}
		if err := unix.SchedSetaffinity(id, &share); err != nil && err != unix.ESRCH {
			return fmt.Errorf("keep a thread on CPUs %s: %w", list, err)
		}
	}
	if len(list) > 1 {
		return unix.SchedSetaffinity(0, &first)
	}
	return nil
}

func (r *rank) command(line string) error {
	var name, dtype string
	var bytes, used, window int
	var seconds float64
	if _, err := fmt.Sscan(line, &name, &bytes, &dtype, &seconds, &used, &window); err != nil {
		return fmt.Errorf("command %q: %w", line, err)
	}
	length := time.Duration(seconds * float64(time.Second))
	if dtype == "bf16" {
		of := func(n uint) ringlane.BF16 { return ringlane.BF16(math.Float32bits(float32(n)) >> 16) }
		return measure(r, name, bytes/2, of, length, used != 0, window != 0)
	}
	return measure(r, name, bytes/4, func(n uint) float32 { return float32(n) }, length, used != 0, window != 0)
}

// measure times a call whose larger buffer has so many elements. of makes an
// element of a small integer.
func measure[T float32 | ringlane.BF16](r *rank, name string, elements int, of func(uint) T, length time.Duration, used, window bool) error {
	c, err := newCall(r, name, elements, of, window)
	if err != nil {
		return err
	}
	c.fill()
	if _, err := repeat(r, c, used, length/5); err != nil { // warm
		return err
	}
	before := r.empty()
	calls, err := repeat(r, c, used, length)
	if err != nil {
		return err
	}
	after := r.empty()
	r.board.wrong[r.number].Store(uint64(c.wrong()))
	r.board.barrier()
	if r.number == 0 {
		if err := r.reply(calls, before, after); err != nil {
			return err
		}
	}
	if err := c.release(); err != nil {
		return err
	}
	debug.FreeOSMemory() // as free does in C; not while somebody measures
	return nil
}

// repeat times calls for a while, leaves this rank's times on the board and
// returns how many.
func repeat[T float32 | ringlane.BF16](r *rank, c *call[T], used bool, length time.Duration) (int, error) {
	b := r.board
	if r.number == 0 {
		b.last.Store(math.MaxUint64)
	}
	b.barrier()
	begun := time.Since(r.born)
	for i := 0; ; i++ {
		if used {
			c.use()
			c.fill()
		}
		enough := i+1 >= minCalls && time.Since(r.born)-begun > length
		if r.number == 0 && (enough || i+1 == maxCalls) {
			b.last.Store(uint64(i))
		}
		b.barrier()
		from := time.Since(r.born)
		err := c.perform()
		b.note(r.number, i, time.Since(r.born)-from)
		if err != nil {
			return 0, err
		}
		if b.last.Load() == uint64(i) {
			b.barrier()
			return i + 1, nil
		}
	}
}

// empty is the time of an empty barrier, the least of some batches.
func (r *rank) empty() time.Duration {
	const batches, barriers = 10, 30
	least := time.Second
	r.board.barrier()
	for range batches {
		from := time.Since(r.born)
		for range barriers {
			r.board.barrier()
		}
		least = min(least, time.Since(r.born)-from)
	}
	return least / barriers
}

func (r *rank) reply(calls int, before, after time.Duration) error {
	wrong, times := r.board.sum(calls)
	_, err := fmt.Fprintf(r.answers, "%d %d native %.9f %.9f\n", calls, wrong, before.Seconds(), after.Seconds())
	if err == nil {
		_, err = r.answers.Write(times)
	}
	return err
}
