// Package pcie holds what is true of PCI Express everywhere: the address of a
// function, the arithmetic of a link, and the meaning of the registers in
// configuration space. It reads nothing; others hand it text and bytes.
//
// A fact that was not seen is never a zero: a capability that was not read is
// a nil pointer, a speed or width that is not known is 0 (no link runs at
// 0), and a payload size that is not known is 0.
package pcie
