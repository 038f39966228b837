//go:build race

package device

const race = true // which makes sync.Pool forget
