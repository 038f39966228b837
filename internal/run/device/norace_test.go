//go:build !race

package device

const race = false
