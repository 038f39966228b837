package cost

import "math"

// Observation is a call and the time that it took, in nanoseconds.
type Observation struct {
	Call
	Time float64
}

// fitted bounds the observations that a fit looks at; more of a machine say the
// same again.
const fitted = 300

// Fit returns the parameters, near p, under which the model is closest to what
// was observed, and how far off it is: the mean of the absolute logarithm of
// predicted over observed time, so that 0.1 is some 10 %. It changes one
// parameter at a time, by ever smaller factors.
func (p Parameters) Fit(observed []Observation) (best Parameters, off float64) {
	if len(observed) == 0 {
		return p, 0
	}
	var f fit
	for i := 0; i < len(observed); i += (len(observed) + fitted - 1) / fitted {
		f.observed = append(f.observed, observed[i])
		f.prices = append(f.prices, p.pricer())
	}
	best, off = p, f.off(p)
	for _, factor := range []float64{2, 1.4, 1.15, 1.05} {
		for improved, rounds := true, 0; improved && rounds < 8; rounds++ {
			improved = false
			for i := range p.times() {
				for _, x := range []float64{factor, 1 / factor} {
					try := best
					*try.times()[i] *= x
					if o := f.off(try); o < off {
						best, off, improved = try, o, true
					}
				}
			}
		}
	}
	return best, off
}

type fit struct {
	observed []Observation
	prices   []pricer
}

func (f *fit) off(p Parameters) (sum float64) {
	for i, o := range f.observed {
		f.prices[i].Parameters = p
		sum += math.Abs(math.Log(f.prices[i].time(o.Call) / o.Time))
	}
	return sum / float64(len(f.observed))
}

// times are the parameters that a fit may change.
func (p *Parameters) times() []*float64 {
	return []*float64{&p.Call, &p.Send, &p.Receive, &p.Flight, &p.Switch, &p.Write, &p.Read, &p.Reduce, &p.Copy, &p.Words, &p.Far}
}
