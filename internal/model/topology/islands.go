package topology

// Islands parts some GPUs of the tree, which may name one several times, by what
// their paths to each other cross: switches, else host bridges, else NUMA nodes;
// the nearest that leaves none alone. It numbers them as Nearest does and is nil
// where there is one island, or the tree does not say.
func (g *Graph) Islands(gpus []*Node) []int {
	for _, most := range []PathKind{PXB, PHB, NODE} {
		islands := Join(len(gpus), func(i, j int) bool {
			if gpus[i] == gpus[j] {
				return true
			}
			kind := g.Path(gpus[i], gpus[j]).Kind
			return kind != "" && !kind.farther(most)
		})
		if islands != nil {
			return islands
		}
	}
	return nil
}
