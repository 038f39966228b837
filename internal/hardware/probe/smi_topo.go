package probe

import (
	"regexp"
	"strconv"
	"strings"

	"ringlane/internal/model/machine"
)

// smiTopo reads the matrices of nvidia-smi topo -m and topo -p2p.
type smiTopo struct {
	b       *builder
	m       *machine.Matrix
	columns []string // names of the affinity columns, in order
	legend  bool
}

var matrixName = regexp.MustCompile(`^(GPU|NIC|DLA)\d+$|^(mlx|hfi|qib|bnxt_re|irdma|rocep|rdmap|ib|efa|cxgb)[a-z0-9_]+$`)

// isMatrixHeader recognises "	GPU0	GPU1	...	CPU Affinity".
func isMatrixHeader(s string) bool {
	if !strings.Contains(s, "GPU0") {
		return false
	}
	f := strings.Fields(s)
	return len(f) > 0 && f[0] == "GPU0" && (len(f) == 1 || matrixName.MatchString(f[1]) || f[1] == "CPU")
}

func (t *smiTopo) line(no int, s string) bool {
	if isMatrixHeader(s) {
		t.begin(s)
		return true
	}
	if t.m == nil {
		return false
	}
	f := strings.Fields(s)
	switch {
	case len(f) == 0:
		return true
	case strings.HasSuffix(f[0], "Legend:") || len(f) > 1 && f[1] == "Legend:":
		t.legend = true
		return true
	case t.legend:
		return t.legendLine(f)
	case matrixName.MatchString(f[0]):
		t.row(no, f)
		return true
	}
	t.m = nil
	return false
}

func (t *smiTopo) begin(s string) {
	t.b.saw(machine.KindTopo)
	m := &machine.Matrix{Kind: "topology"}
	f := strings.Fields(s)
	for len(f) > 0 && matrixName.MatchString(f[0]) {
		m.Names, f = append(m.Names, f[0]), f[1:]
	}
	rest := strings.Join(f, " ")
	t.columns = nil
	for _, c := range []string{"CPU Affinity", "NUMA Affinity", "GPU NUMA ID"} {
		if strings.Contains(rest, c) {
			t.columns = append(t.columns, c)
		}
	}
	t.m, t.legend = m, false
	t.b.m.Matrix = m
}

// row reads "GPU0 X PIX NODE 0-31 0 N/A". Cells of -p2p are OK, NS, CNS…
func (t *smiTopo) row(no int, f []string) {
	name, f := f[0], f[1:]
	n := len(t.m.Names)
	if len(f) < n {
		t.b.problem(no, machine.Truncated, "the row of %s has %d cells of %d", name, len(f), n)
		return
	}
	if len(t.m.Rows) >= 2*n { // one row a name, however often the lines repeat
		return
	}
	r := machine.MatrixRow{Name: name, Cells: append([]string(nil), f[:n]...)}
	for i, column := range t.columns {
		if n+i >= len(f) || f[n+i] == "N/A" {
			continue
		}
		switch v := f[n+i]; column {
		case "CPU Affinity":
			r.CPUs = v
		case "NUMA Affinity":
			// A range is a union of nodes ("0-1"): it tells no node.
			if node, err := strconv.Atoi(v); err == nil {
				r.NUMA = &node
			}
		}
	}
	t.m.Rows = append(t.m.Rows, r)
	if t.m.Kind == "topology" && isPeerMatrix(r.Cells) && len(t.b.m.P2P) < maxMatrices {
		t.m.Kind = "p2p"
		if t.b.m.Matrix == t.m {
			t.b.m.Matrix = nil
		}
		t.b.m.P2P = append(t.b.m.P2P, machine.Matrix{})
	}
	if t.m.Kind == "p2p" {
		t.b.m.P2P[len(t.b.m.P2P)-1] = *t.m
	}
}

// maxMatrices bounds the peer matrices: nvidia-smi has five kinds.
const maxMatrices = 16

// isPeerMatrix reports cells that only -p2p has.
func isPeerMatrix(cells []string) bool {
	for _, c := range cells {
		switch c {
		case "OK", "CNS", "GNS", "TNS", "NS", "DR":
			return true
		}
	}
	return false
}

func (t *smiTopo) legendLine(f []string) bool {
	name, ok := strings.CutSuffix(f[0], ":")
	if ok && len(f) == 2 && strings.HasPrefix(name, "NIC") { // "NIC0: mlx5_0"
		if t.m.NICs == nil {
			t.m.NICs = map[string]string{}
		}
		t.m.NICs[name] = f[1]
		return true
	}
	return len(f) > 1 && f[1] == "="
}
