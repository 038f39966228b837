package topology

// An Uplink is a link that several devices share: two GPUs or more, or a GPU
// and a NIC or NVMe drive.
type Uplink struct {
	Switch *Node // whose link towards the root it is
	GPUs   []*Node
	Others []*Node // NICs and NVMe drives
	// Inside is the next shared uplink above, nil if there is none.
	Inside *Uplink
	// Demand is the sum of what the links of all these devices carry, 0 where
	// one of them is not known. A NIC known by name alone counts for nothing.
	Demand float64
}

// Component names the uplink for reports: the link, or where no input has
// addresses the names of the devices.
func (u *Uplink) Component() string {
	if c := u.Switch.Up.Component(); c != "" {
		return c
	}
	return u.Switch.ID
}

// GBs returns the bandwidth one way, 0 if not known.
func (u *Uplink) GBs() float64 { return u.Switch.Up.GBs() }

// Oversubscription is Demand over the uplink's own bandwidth: how many times
// too narrow it is when all devices speak at once. It is 0 if not known.
func (u *Uplink) Oversubscription() float64 {
	if u.GBs() == 0 {
		return 0
	}
	return u.Demand / u.GBs()
}

// SharedUplinks returns the shared uplinks of every level, outer ones before
// those inside them.
func (g *Graph) SharedUplinks() []*Uplink {
	var out []*Uplink
	var visit func(n *Node, inside *Uplink)
	visit = func(n *Node, inside *Uplink) {
		if n.Kind == Switch {
			u := &Uplink{Switch: n, Inside: inside}
			known := true
			for _, e := range n.Endpoints() {
				switch e.Kind {
				case GPU:
					u.GPUs = append(u.GPUs, e)
				case NIC, NVMe:
					u.Others = append(u.Others, e)
				default:
					continue
				}
				u.Demand += e.Up.GBs()
				known = known && (e.Up.GBs() > 0 || e.Device == nil && e.Kind == NIC)
			}
			if !known {
				u.Demand = 0
			}
			if len(u.GPUs) > 1 || len(u.GPUs) == 1 && len(u.Others) > 0 {
				out = append(out, u)
				inside = u
			}
		}
		for _, c := range n.Children {
			visit(c, inside)
		}
	}
	visit(g.Root, nil)
	return out
}
