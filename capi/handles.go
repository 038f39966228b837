//go:build cgo

package main

import (
	"fmt"
	"sync"
	"sync/atomic"

	"ringlane/internal/run/communicator"
	"ringlane/internal/run/device"
)

// handles gives numbers to Go values for C to hold. Numbers are not used again,
// so that a stale one is found out.
type handles[T any] struct {
	kind   string
	recent atomic.Pointer[named[T]] // what was asked for last
	mu     sync.RWMutex
	last   uint64
	items  map[uint64]T
}

type named[T any] struct {
	id   uint64
	item T
}

var (
	comms    = handles[*communicator.Comm]{kind: "communicator", items: map[uint64]*communicator.Comm{}}
	devices  = handles[*device.Comm]{kind: "device communicator", items: map[uint64]*device.Comm{}}
	requests = handles[ticket]{kind: "request", items: map[uint64]ticket{}}
)

func (h *handles[T]) put(item T) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last++
	h.items[h.last] = item
	return h.last
}

func (h *handles[T]) get(id uint64) (T, error) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	item, ok := h.items[id]
	if !ok {
		return item, h.unknown(id)
	}
	return item, nil
}

// again is get for what is asked for over and over, as communicators are.
func (h *handles[T]) again(id uint64) (T, error) {
	if r := h.recent.Load(); r != nil && r.id == id {
		return r.item, nil
	}
	h.mu.RLock()
	defer h.mu.RUnlock()
	item, ok := h.items[id]
	if !ok {
		return item, h.unknown(id)
	}
	h.recent.Store(&named[T]{id, item}) // under the lock: not after a take
	return item, nil
}

func (h *handles[T]) take(id uint64) (T, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	item, ok := h.items[id]
	if !ok {
		return item, h.unknown(id)
	}
	delete(h.items, id)
	h.recent.Store(nil)
	return item, nil
}

func (h *handles[T]) unknown(id uint64) error {
	return &communicator.Error{Code: communicator.Closed, Text: fmt.Sprintf("%s %d does not exist (it was closed, or never made)", h.kind, id)}
}
