package drawing

import (
	"encoding/json"
	"io"
	"math"

	"ringlane/internal/model/machine"
	"ringlane/internal/model/topology"
)

// bandwidth is gigabytes a second one way after line encoding; 0 is unknown
// and null in JSON.
type bandwidth float64

func (b bandwidth) MarshalJSON() ([]byte, error) {
	if b == 0 {
		return []byte("null"), nil
	}
	return json.Marshal(math.Round(float64(b)*100) / 100)
}

// document is the JSON of a sheet: a public interface. Devices are named by
// address, or by their name in the input where it has no addresses.
type document struct {
	GPUs     []gpuEntry        `json:"gpus"`
	Pairs    []pairEntry       `json:"pairs"`
	Uplinks  []uplinkEntry     `json:"shared_uplinks"`
	Ring     []string          `json:"ring"`
	Why      *ringEntry        `json:"ring_cost,omitempty"`
	Tree     *treeEntry        `json:"tree"`
	Problems []machine.Problem `json:"problems"`
}

type gpuEntry struct {
	BDF    string    `json:"bdf,omitempty"`
	Name   string    `json:"name"`
	Index  int       `json:"index"`
	UUID   string    `json:"uuid,omitempty"`
	NUMA   *int      `json:"numa"`
	Socket *int      `json:"socket,omitempty"`
	GBs    bandwidth `json:"link_gb_per_s"`
	*linkEntry
}

type linkEntry struct {
	Component  string `json:"link,omitempty"`
	Negotiated string `json:"link_negotiated,omitempty"`
	Capable    string `json:"link_capable,omitempty"`
	Idle       bool   `json:"link_idle,omitempty"`
	Note       string `json:"link_note,omitempty"`
}

type pairEntry struct {
	A       string            `json:"a"`
	B       string            `json:"b"`
	Kind    topology.PathKind `json:"kind"`
	GBs     bandwidth         `json:"gb_per_s"`
	P2P     topology.Verdict  `json:"p2p"`
	Reason  string            `json:"p2p_reason"`
	Via     []string          `json:"via"`
	Sockets bool              `json:"crosses_sockets,omitempty"`
	NVLinks int               `json:"nvlinks,omitempty"` // -1: through a switch

	Measured *measuredEntry `json:"measured,omitempty"`
}

type uplinkEntry struct {
	Component        string    `json:"component"`
	Switch           string    `json:"switch"`
	GPUs             []string  `json:"gpus"`
	Others           []string  `json:"others"`
	GBs              bandwidth `json:"gb_per_s"`
	Oversubscription bandwidth `json:"oversubscription"`
	Inside           string    `json:"inside,omitempty"`
}

type ringEntry struct {
	Exact   bool      `json:"exact"`
	GBs     bandwidth `json:"gb_per_s"`
	Busiest string    `json:"busiest,omitempty"`
	Sockets int       `json:"socket_crossings"`
	Nodes   int       `json:"node_crossings"`
	Uplinks int       `json:"uplink_crossings"`
}

type treeEntry struct {
	Kind topology.Kind `json:"kind"`
	ID   string        `json:"id"`
	Name string        `json:"name,omitempty"`
	GBs  bandwidth     `json:"link_gb_per_s,omitempty"`
	*linkEntry
	Children []*treeEntry `json:"children,omitempty"`
}

// JSON writes the sheet as one JSON object.
func (s *Sheet) JSON(w io.Writer) error {
	d := document{
		GPUs: []gpuEntry{}, Pairs: []pairEntry{}, Uplinks: []uplinkEntry{},
		Ring: ids(s.Ring.Order), Tree: tree(s.Graph.Root), Problems: s.Problems,
	}
	if d.Problems == nil {
		d.Problems = []machine.Problem{}
	}
	for _, n := range s.Graph.GPUs {
		e := gpuEntry{Name: n.Name, Index: n.Index, NUMA: n.Node, Socket: n.Socket, GBs: bandwidth(n.Up.GBs()), linkEntry: link(n.Up)}
		if n.Device != nil {
			e.BDF = n.ID
			if n.Device.GPU != nil {
				e.UUID = n.Device.GPU.UUID
			}
		}
		d.GPUs = append(d.GPUs, e)
	}
	for i := range s.Paths {
		p := &s.Paths[i]
		e := pairEntry{
			A: p.A.ID, B: p.B.ID, Kind: p.Kind, GBs: bandwidth(p.GBs), P2P: p.Peer.Verdict,
			Reason: p.Peer.Reason, Via: p.Via, Sockets: p.Sockets, NVLinks: p.NVLinks,
		}
		if e.Kind == "" {
			e.Kind = "unknown"
		}
		if e.Via == nil {
			e.Via = []string{}
		}
		e.Measured = s.measurementOf(e.A, e.B)
		d.Pairs = append(d.Pairs, e)
	}
	d.Pairs = append(d.Pairs, s.unseen()...)
	for _, u := range s.Uplinks {
		e := uplinkEntry{
			Component: u.Component(), Switch: u.Switch.ID, GPUs: ids(u.GPUs), Others: ids(u.Others),
			GBs: bandwidth(u.GBs()), Oversubscription: bandwidth(u.Oversubscription()),
		}
		if u.Inside != nil {
			e.Inside = u.Inside.Component()
		}
		d.Uplinks = append(d.Uplinks, e)
	}
	if r := s.Ring; len(r.Order) > 0 {
		d.Why = &ringEntry{
			Exact: r.Exact, GBs: bandwidth(r.GBs),
			Sockets: r.Cost.Sockets, Nodes: r.Cost.Nodes, Uplinks: r.Cost.Uplinks,
		}
		if r.Busiest != nil {
			d.Why.Busiest = r.Busiest.Up.Component()
		}
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(d)
}

func link(l *topology.Link) *linkEntry {
	if l == nil {
		return nil
	}
	e := &linkEntry{Component: l.Component(), Idle: l.Idle, Note: l.Note}
	if l.Negotiated.Known() {
		e.Negotiated = l.Negotiated.String()
	}
	if l.Capable.Known() {
		e.Capable = l.Capable.String()
	}
	return e
}

func tree(n *topology.Node) *treeEntry {
	e := &treeEntry{Kind: n.Kind, ID: n.ID, Name: n.Name, GBs: bandwidth(n.Up.GBs()), linkEntry: link(n.Up)}
	for _, c := range n.Children {
		e.Children = append(e.Children, tree(c))
	}
	return e
}
