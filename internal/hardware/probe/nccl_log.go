package probe

import (
	"slices"
	"strconv"
	"strings"

	"ringlane/internal/model/machine"
	"ringlane/internal/model/pcie"
)

// ncclLog reads lines of NCCL's and RCCL's log, and the header that
// nccl-tests prints.
type ncclLog struct {
	b          *builder
	transports map[machine.NCCLTransport]bool
	ranks      map[int]int // rank -> index in NCCL.Ranks
	warnings   map[string]int
}

func (l *ncclLog) line(s string) bool {
	i := strings.Index(s, "NCCL ")
	switch {
	case i >= 0 && strings.HasPrefix(s[i+5:], "INFO "):
		l.info(s[:i], s[i+10:])
	case i >= 0 && strings.HasPrefix(s[i+5:], "WARN "):
		l.warn(strings.TrimSpace(s[i+10:]))
	case strings.HasPrefix(s, "#  Rank ") && strings.Contains(s, " Pid "):
		l.testRank(s)
	default:
		return false
	}
	l.b.saw(machine.KindNCCLLog)
	return true
}

func (l *ncclLog) nccl() *machine.NCCL { return made(&l.b.m.NCCL) }

func (l *ncclLog) info(head, t string) {
	n := l.nccl()
	switch {
	case strings.HasPrefix(t, "NCCL version "):
		n.Version = firstWord(t[len("NCCL version "):])
	case strings.HasPrefix(t, "RCCL version "):
		n.Version = "RCCL " + firstWord(strings.TrimLeft(t[len("RCCL version "):], ": "))
	case strings.Contains(t, " busId ") && strings.Contains(t, " rank "):
		l.rank(head, t)
	case strings.HasPrefix(t, "Channel ") && strings.Contains(t, " : ") && strings.Contains(t, " via "):
		l.transport(t)
	case strings.HasPrefix(t, "Channel ") && strings.Contains(t, " : "):
		l.channel(t)
	case strings.HasPrefix(t, "NCCL_P2P_DISABLE set by environment to ") && !strings.HasSuffix(strings.TrimSpace(t), " 0"),
		strings.HasPrefix(t, "NCCL_P2P_LEVEL set by environment to LOC"),
		strings.Contains(t, "P2P is disabled between"),
		strings.Contains(t, "Ignoring P2P"):
		if n.P2PDisabled == "" {
			n.P2PDisabled = strings.TrimSpace(t)
		}
	}
}

// valueAfter returns the word after name.
func valueAfter(t, name string) string {
	_, v, ok := strings.Cut(t, name)
	if !ok {
		return ""
	}
	return firstWord(strings.TrimLeft(v, " "))
}

func numberAfter(t, name string, missing int) int {
	if v, err := strconv.Atoi(valueAfter(t, name)); err == nil {
		return v
	}
	return missing
}

// rank reads "ncclCommInitRank comm 0x63.. rank 0 nranks 4 cudaDev 0 nvmlDev 0
// busId 3b000 ...". The host is the word before the first colon.
func (l *ncclLog) rank(head, t string) {
	r := machine.NCCLRank{
		Rank: numberAfter(t, " rank ", -1), Ranks: numberAfter(t, " nranks ", 0),
		CUDA: numberAfter(t, " cudaDev ", -1), NVML: numberAfter(t, " nvmlDev ", -1),
	}
	if r.Rank < 0 {
		return
	}
	r.Host, _, _ = strings.Cut(strings.TrimSpace(head), ":")
	if at, err := pcie.ParseBDF(valueAfter(t, " busId ")); err == nil {
		r.BDF = &at
	}
	l.add(r)
}

// testRank reads "#  Rank  0 Group  0 Pid 17 on host device  0 [0000:3b:00] NVIDIA RTX A6000".
func (l *ncclLog) testRank(s string) {
	r := machine.NCCLRank{Rank: numberAfter(s, "Rank ", -1), CUDA: numberAfter(s, " device ", -1), NVML: -1, Host: valueAfter(s, " on ")}
	_, rest, _ := strings.Cut(s, "[")
	address, name, _ := strings.Cut(rest, "]")
	if at, err := pcie.ParseBDF(strings.TrimPrefix(address, "0x")); err == nil && strings.Contains(address, ":") {
		r.BDF = &at
	}
	if r.Rank < 0 {
		return
	}
	if r.BDF != nil {
		d := l.b.device(*r.BDF, machine.KindNCCLLog)
		if g := made(&d.GPU); g.Name == "" {
			g.Name = strings.TrimSpace(name)
		}
	}
	l.add(r)
}

// maxRanks bounds what is kept of a log of a large job.
const maxRanks = 4096

// add keeps one entry a rank: that of the largest communicator, which is the
// one of the whole job.
func (l *ncclLog) add(r machine.NCCLRank) {
	n := l.nccl()
	if l.ranks == nil {
		l.ranks = map[int]int{}
	}
	i, ok := l.ranks[r.Rank]
	if !ok {
		if len(n.Ranks) < maxRanks {
			l.ranks[r.Rank] = len(n.Ranks)
			n.Ranks = append(n.Ranks, r)
		}
		return
	}
	h := &n.Ranks[i]
	if r.Ranks > h.Ranks {
		r, *h = *h, r
	}
	keep(&h.BDF, r.BDF)
	if h.NVML < 0 {
		h.NVML = r.NVML
	}
}

// channel reads "Channel 00/02 : 0 1 2 3".
func (l *ncclLog) channel(t string) {
	_, list, _ := strings.Cut(t, " : ")
	var ring []int
	for w := range strings.FieldsSeq(list) {
		r, err := strconv.Atoi(w)
		if err != nil {
			return
		}
		ring = append(ring, r)
	}
	n := l.nccl()
	if len(ring) > 1 && len(n.Channels) < 64 &&
		!slices.ContainsFunc(n.Channels, func(c []int) bool { return slices.Equal(c, ring) }) {
		n.Channels = append(n.Channels, ring)
	}
}

// transport reads "Channel 00/0 : 0[3b000] -> 1[5e000] via SHM/direct/direct"
// and "Channel 00 : 0[0] -> 1[1] via P2P/CUMEM".
func (l *ncclLog) transport(t string) {
	_, t, _ = strings.Cut(t, " : ")
	ways, via, _ := strings.Cut(t, " via ")
	from, to, ok := strings.Cut(ways, " -> ")
	a, err1 := strconv.Atoi(firstOf(strings.TrimSpace(from), "[ "))
	z, err2 := strconv.Atoi(firstOf(strings.TrimSpace(to), "[ "))
	if !ok || err1 != nil || err2 != nil {
		return
	}
	v := machine.NCCLTransport{From: a, To: z, Via: strings.TrimSpace(via)}
	if l.transports == nil {
		l.transports = map[machine.NCCLTransport]bool{}
	}
	if !l.transports[v] && len(l.transports) < maxRanks {
		l.transports[v] = true
		l.nccl().Transports = append(l.nccl().Transports, v)
	}
}

func (l *ncclLog) warn(t string) {
	n := l.nccl()
	if strings.Contains(t, `Missing "iommu=pt"`) {
		fill(&n.NoPassthrough, t)
	}
	if l.warnings == nil {
		l.warnings = map[string]int{}
	}
	if i, ok := l.warnings[t]; ok {
		n.Warnings[i].Count++
	} else if len(n.Warnings) < machine.MaxWarnings {
		l.warnings[t] = len(n.Warnings)
		n.Warnings = append(n.Warnings, machine.Warning{Text: t, Count: 1})
	}
}
