//go:build race

package cuda_test

const race = true
