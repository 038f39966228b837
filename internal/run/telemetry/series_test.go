package telemetry

import (
	"math/rand/v2"
	"testing"
)

// Buckets follow one another without a gap, and none is wider than 0.1 % of
// what it holds.
func TestBuckets(t *testing.T) {
	for i := range buckets - 1 {
		if top := highest(i); bucket(top) != i || bucket(top+1) != i+1 {
			t.Fatalf("bucket %d ends with %d, which lies in %d, and the next in %d", i, top, bucket(top), bucket(top+1))
		}
	}
	if i := bucket(longest); i >= buckets {
		t.Errorf("2 hours lie in bucket %d of %d", i, buckets)
	}
	for range 10000 {
		ns := rand.Uint64N(longest)
		if top := highest(bucket(ns)); top < ns || float64(top-ns) > 0.001*float64(ns) {
			t.Errorf("%d is kept as %d", ns, top)
		}
	}
}
