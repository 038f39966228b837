package reduce

import "math"

// The loops below take slices of equal length. dst may be one of the terms.
//
// They must leave the one quiet NaN wherever a result is not a number. A
// comparison for each element would take twice the time of the addition, so
// each loop adds its results up on the side, in parallel with the stores: that
// sum is NaN if any result is. It may also be NaN without (infinities of both
// signs), which costs a second look and nothing else. For integers the compiler
// sees that nothing is ever unequal to itself and drops the sums.

func sum2[T number](dst, a, b []T, nan T) {
	n := len(dst)
	a, b = a[:n], b[:n]
	var c0, c1, c2, c3 T
	i := 0
	for ; i < n-3; i += 4 {
		s0, s1, s2, s3 := a[i]+b[i], a[i+1]+b[i+1], a[i+2]+b[i+2], a[i+3]+b[i+3]
		dst[i], dst[i+1], dst[i+2], dst[i+3] = s0, s1, s2, s3
		c0, c1, c2, c3 = c0+s0, c1+s1, c2+s2, c3+s3
	}
	for ; i < n; i++ {
		s := a[i] + b[i]
		dst[i] = s
		c0 += s
	}
	if c := c0 + c1 + c2 + c3; c != c {
		quiet(dst, nan)
	}
}

func sum3[T number](dst, a, b, c []T, nan T) {
	n := len(dst)
	a, b, c = a[:n], b[:n], c[:n]
	var c0, c1, c2, c3 T
	i := 0
	for ; i < n-3; i += 4 {
		s0, s1, s2, s3 := a[i]+b[i]+c[i], a[i+1]+b[i+1]+c[i+1], a[i+2]+b[i+2]+c[i+2], a[i+3]+b[i+3]+c[i+3]
		dst[i], dst[i+1], dst[i+2], dst[i+3] = s0, s1, s2, s3
		c0, c1, c2, c3 = c0+s0, c1+s1, c2+s2, c3+s3
	}
	for ; i < n; i++ {
		s := a[i] + b[i] + c[i]
		dst[i] = s
		c0 += s
	}
	if c := c0 + c1 + c2 + c3; c != c {
		quiet(dst, nan)
	}
}

func sum4[T number](dst, a, b, c, d []T, nan T) {
	n := len(dst)
	a, b, c, d = a[:n], b[:n], c[:n], d[:n]
	var c0, c1, c2, c3 T
	i := 0
	for ; i < n-3; i += 4 {
		s0, s1 := a[i]+b[i]+c[i]+d[i], a[i+1]+b[i+1]+c[i+1]+d[i+1]
		s2, s3 := a[i+2]+b[i+2]+c[i+2]+d[i+2], a[i+3]+b[i+3]+c[i+3]+d[i+3]
		dst[i], dst[i+1], dst[i+2], dst[i+3] = s0, s1, s2, s3
		c0, c1, c2, c3 = c0+s0, c1+s1, c2+s2, c3+s3
	}
	for ; i < n; i++ {
		s := a[i] + b[i] + c[i] + d[i]
		dst[i] = s
		c0 += s
	}
	if c := c0 + c1 + c2 + c3; c != c {
		quiet(dst, nan)
	}
}

func prod2[T number](dst, a, b []T, nan T) {
	n := len(dst)
	a, b = a[:n], b[:n]
	var c0, c1 T
	i := 0
	for ; i < n-1; i += 2 {
		// T() rounds each product: it must not be fused with the sum below.
		p0, p1 := T(a[i]*b[i]), T(a[i+1]*b[i+1])
		dst[i], dst[i+1] = p0, p1
		c0, c1 = c0+p0, c1+p1
	}
	for ; i < n; i++ {
		p := T(a[i] * b[i])
		dst[i] = p
		c0 += p
	}
	if c := c0 + c1; c != c {
		quiet(dst, nan)
	}
}

// min2 and max2 rely on the built-in functions, which propagate NaN and order
// -0 before +0 as the operators of dtype do.

func min2[T number](dst, a, b []T, nan T) {
	n := len(dst)
	a, b = a[:n], b[:n]
	var c T
	for i := range dst {
		m := min(a[i], b[i])
		dst[i] = m
		c += m
	}
	if c != c {
		quiet(dst, nan)
	}
}

func max2[T number](dst, a, b []T, nan T) {
	n := len(dst)
	a, b = a[:n], b[:n]
	var c T
	for i := range dst {
		m := max(a[i], b[i])
		dst[i] = m
		c += m
	}
	if c != c {
		quiet(dst, nan)
	}
}

// quiet replaces every NaN in s by nan.
func quiet[T number](s []T, nan T) {
	for i, x := range s {
		if x != x {
			s[i] = nan
		}
	}
}

// quietNaN returns the one NaN that a result may hold; no integer needs it.
func quietNaN[T number]() T { return T(math.Float64frombits(0x7ff8000000000000)) }

// divide divides s by div: floats rounding to nearest, integers truncating.
func divide[T number](s []T, div int) {
	isFloat := T(1)/T(2) != 0
	switch {
	case div == 1:
	case isFloat && div&(div-1) == 0:
		// The reciprocal is exact, hence so is this, and it is faster.
		r := 1 / T(div)
		for i := range s {
			s[i] *= r
		}
	case isFloat:
		d := T(div)
		for i := range s {
			s[i] /= d
		}
	default:
		d := int64(div)
		for i := range s {
			s[i] = T(int64(s[i]) / d)
		}
	}
}
