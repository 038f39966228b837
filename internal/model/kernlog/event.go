// Package kernlog turns the lines of a kernel log into typed events.
//
// The text may come in every carrier that people have: dmesg in its forms,
// syslog, journalctl, records of /dev/kmsg, mail quotes, terminal captures, the
// sections of an nvidia-bug-report. The grammar of the lines is a product of
// options, never a choice by kernel version: distributions port wordings back.
//
// A [Scanner] is fed text and hands on an [Entry] an event, in constant memory
// whatever the size of the log. [Parse] does the same to a text at hand.
package kernlog

import (
	"slices"
	"strings"
)

// Event is one of the event types of this package: AERError, Recovery,
// PortService, DPC, EDR, FirmwareError, Hotplug, SlotCapabilities,
// HotplugTimeout, LinkStatus, Retrain, LinkInactive, NotReady, PowerState,
// SlotPower, Bandwidth, ConfigLost, DriverFault, Resource, ResourceAdvice,
// BusNumbers, Payload, ASPM, IOMMUMode, IOMMUUnit, IOMMUFault, IOMMUGroup, Xid,
// GPULost, GPUInitFailed, GPUBarInvalid, GPUReset, GPUIdentity, DriverLoaded,
// DeviceFound, DeviceName, KernelVersion, CommandLine, Hypervisor, Platform,
// NUMANode, RootBridge, OSC, FirmwareFirst, LinesLost. A rule switches over the
// types; all are values.
type Event interface{ event() }

// Entry is one event and where it stood.
type Entry struct {
	// Event is what happened.
	Event Event

	// Device is the function that the line is about (for NVRM lines the
	// card, see Address), "" where it names none; Driver is the word before
	// it ("pcieport", "nvme").
	Device Address
	Driver string

	// Line is the number of the line that the event begins with, from 1, and
	// Time when that was printed. Of an AERError it is the device's own
	// line, after the port's message.
	Line int
	Time Timestamp

	// Part counts logs within one text, from 0: a section of a bug report
	// or wall time stepping back by more than an hour begins another. Parts
	// often repeat one log (syslog, then journal, then dmesg), so what is
	// counted is counted in one part, never over several. Section is the
	// title of the bug report's section.
	Part    int
	Section string

	// Raw is the lines, at most MaxRaw, without terminal escapes.
	Raw []string
}

const (
	// MaxLine is where a line is cut, in bytes.
	MaxLine = 4096
	// MaxRaw is how many lines an entry keeps as evidence.
	MaxRaw = 48
)

// Parse gives the entries of a whole text in the order of their lines.
func Parse(text string) []Entry {
	var entries []Entry
	s := NewScanner(func(e Entry) { entries = append(entries, e) })
	for len(text) > 0 {
		var line string
		line, text, _ = strings.Cut(text, "\n")
		s.Line(line)
	}
	s.Flush()
	slices.SortStableFunc(entries, func(a, b Entry) int { return a.Line - b.Line })
	return entries
}

// line is one line on its way through the parsers.
type line struct {
	number  int
	time    Timestamp
	part    int
	section string
	raw     string // cleaned, with its carrier
	message string // without its carrier
	program string
	device  Address
	driver  string
	text    string // the message without its device, where it has one
	partial bool   // its end is lost: parsers take what is there
}

// entry is an entry of the line alone.
func (l *line) entry(e Event) Entry {
	return Entry{
		Event: e, Device: l.device, Driver: l.driver, Line: l.number, Time: l.time,
		Part: l.part, Section: l.section, Raw: []string{l.raw},
	}
}

// add puts another line to the evidence.
func (e *Entry) add(l *line) {
	if len(e.Raw) < MaxRaw {
		e.Raw = append(e.Raw, l.raw)
	}
}
