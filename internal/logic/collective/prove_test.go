package collective

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"ringlane/internal/model/schedule"
)

// roots are the roots to try: all for few ranks, some above, one where there is
// no root.
func roots(c schedule.Collective, ranks int) []int {
	switch {
	case !c.Rooted():
		return []int{0}
	case ranks <= 8:
		all := make([]int, ranks)
		for r := range all {
			all[r] = r
		}
		return all
	case testing.Short():
		return []int{ranks / 3}
	}
	return []int{0, ranks / 3, ranks - 1}
}

// everyCase calls f for every algorithm of every collective.
func everyCase(f func(c schedule.Collective, a schedule.Algorithm)) {
	for _, c := range schedule.Collectives {
		for _, a := range Algorithms(c) {
			f(c, a)
		}
	}
}

// TestProofAndClosedForms proves every algorithm for every number of ranks with
// the fewest slots and with one more, and compares its cost with the table in
// docs/algorithms.md.
func TestProofAndClosedForms(t *testing.T) {
	table := readTable(t)
	everyCase(func(c schedule.Collective, a schedule.Algorithm) {
		rows := table[c.String()+" "+a.Name]
		if rows == nil {
			t.Errorf("docs/algorithms.md has no %v %s", c, a.Name)
		}
		delete(table, c.String()+" "+a.Name)
		t.Run(fmt.Sprintf("%v/%s", c, a.Name), func(t *testing.T) {
			t.Parallel()
			for n := 1; n <= schedule.MaxRanks; n++ {
				for _, root := range roots(c, n) {
					claim := schedule.Claim{
						Programs: a.Programs(n, root),
						Chunks:   a.Chunks(n),
						Goal:     Goal(c, n, root),
					}
					var cost schedule.Cost
					for claim.Slots = 1; claim.Slots <= 2; claim.Slots++ {
						var err error
						if cost, err = claim.Prove(); err != nil {
							t.Fatalf("%d ranks, root %d, %d slots: %v", n, root, claim.Slots, err)
						}
					}
					if n == 1 {
						if cost.Steps != 0 || cost.OnePort != 0 || cost.Ranks[0] != (schedule.Traffic{}) {
							t.Errorf("a single rank costs %+v", cost)
						}
						continue
					}
					compare(t, rows, c, claim, cost, root)
				}
			}
		})
	})
	for name := range table {
		t.Errorf("docs/algorithms.md has %s, which does not exist", name)
	}
}

// compare checks the rows of one algorithm against what was counted.
func compare(t *testing.T, rows []map[string]string, c schedule.Collective, claim schedule.Claim, cost schedule.Cost, root int) {
	t.Helper()
	n := len(claim.Programs)
	const N, w = 1000, 2
	used := make([]bool, len(rows))
	for rank, traffic := range cost.Ranks {
		v := (rank - root + n) % n
		k := len(treeChildren(n, v))
		i := 0
		for _, child := range treeChildren(n, v) {
			if len(treeChildren(n, child)) > 0 {
				i++
			}
		}
		vars := map[string]float64{"n": float64(n), "N": N, "w": w, "k": float64(k), "i": float64(i)}
		role := func(name string) bool {
			switch name {
			case "each":
				return true
			case "root":
				return v == 0
			case "other":
				return v != 0
			case "inner":
				return v != 0 && k > 0
			case "leaf":
				return v != 0 && k == 0
			}
			t.Fatalf("no role %q", name)
			return false
		}
		at := slices.IndexFunc(rows, func(row map[string]string) bool { return role(row["Rank"]) })
		if at < 0 {
			t.Fatalf("no row for rank %d of %d", rank, n)
		}
		used[at] = true
		chunk := float64(N)
		if c == schedule.AllReduce {
			chunk = N / float64(claim.Chunks)
		}
		partialsRead := 0
		for _, step := range claim.Programs[rank] {
			for _, from := range step.From {
				if from.Rank != rank && from.Value == schedule.Partial {
					partialsRead++
				}
			}
		}
		for column, want := range map[string]float64{
			"Chunks":        float64(claim.Chunks),
			"Steps":         float64(cost.Steps),
			"One-port":      float64(cost.OnePort),
			"Written":       float64(traffic.Written),
			"Partial":       float64(traffic.Partial),
			"Read":          float64(traffic.Read),
			"Bytes written": chunk * float64(traffic.Written+(w-1)*traffic.Partial),
			"Bytes read":    chunk * float64(traffic.Read+(w-1)*partialsRead),
		} {
			if got := evaluate(t, rows[at][column], vars); math.Abs(got-want) > 1e-9*want {
				t.Fatalf("rank %d of %d, root %d: docs/algorithms.md says %s = %s = %v, counted %v",
					rank, n, root, column, rows[at][column], got, want)
			}
		}
	}
	// From 5 ranks on a tree has ranks of every kind, so every row has to serve.
	if at := slices.Index(used, false); n >= 5 && at >= 0 {
		t.Fatalf("no rank of %d is %q", n, rows[at]["Rank"])
	}
}

// readTable reads the closed forms from the documentation: the rows, as cell by
// column, of each "collective algorithm".
func readTable(t *testing.T) map[string][]map[string]string {
	t.Helper()
	table := map[string][]map[string]string{}
	for _, row := range rowsUnder(t, "## Closed forms") {
		for name := range strings.SplitSeq(row["Collective"], ", ") {
			name += " " + row["Algorithm"]
			table[name] = append(table[name], row)
		}
	}
	return table
}

// rowsUnder reads the table below a heading of the documentation.
func rowsUnder(t *testing.T, heading string) (rows []map[string]string) {
	t.Helper()
	text, err := os.ReadFile("../../../docs/algorithms.md")
	if err != nil {
		t.Fatal(err)
	}
	_, below, found := strings.Cut(string(text), "\n"+heading+"\n")
	if !found {
		t.Fatalf("docs/algorithms.md has no %s", heading)
	}
	var columns []string
	for line := range strings.Lines(below) {
		if strings.HasPrefix(line, "#") {
			break
		}
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|--") {
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		row := map[string]string{}
		for i, cell := range cells {
			cells[i] = strings.TrimSpace(cell)
			if columns != nil {
				row[columns[i]] = cells[i]
			}
		}
		if columns == nil {
			columns = cells
			continue
		}
		rows = append(rows, row)
	}
	return rows
}

// evaluate computes a formula of the table.
func evaluate(t *testing.T, formula string, vars map[string]float64) float64 {
	t.Helper()
	e, err := parser.ParseExpr(formula)
	if err != nil {
		t.Fatalf("formula %q: %v", formula, err)
	}
	var eval func(e ast.Expr) float64
	eval = func(e ast.Expr) float64 {
		switch e := e.(type) {
		case *ast.BasicLit:
			v, err := strconv.ParseFloat(e.Value, 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		case *ast.Ident:
			if v, ok := vars[e.Name]; ok {
				return v
			}
		case *ast.ParenExpr:
			return eval(e.X)
		case *ast.CallExpr:
			f := map[string]func(float64) float64{"floor": math.Floor, "ceil": math.Ceil, "log2": math.Log2}
			if name, ok := e.Fun.(*ast.Ident); ok && f[name.Name] != nil && len(e.Args) == 1 {
				return f[name.Name](eval(e.Args[0]))
			}
		case *ast.BinaryExpr:
			x, y := eval(e.X), eval(e.Y)
			switch e.Op {
			case token.ADD:
				return x + y
			case token.SUB:
				return x - y
			case token.MUL:
				return x * y
			case token.QUO:
				return x / y
			}
		}
		t.Fatalf("formula %q: cannot evaluate %T", formula, e)
		return 0
	}
	return eval(e)
}
