package kernlog

import "strings"

// SlotChange is what a hot-plug controller saw or did.
type SlotChange string

// The changes that pciehp (and shpchp for some) report.
const (
	CardPresent    SlotChange = "card present"
	CardNotPresent SlotChange = "card not present"
	LinkUp         SlotChange = "link up"
	LinkDown       SlotChange = "link down"
	LinkIgnored    SlotChange = "link down/up ignored" // often: recovered by DPC
	NoLink         SlotChange = "no link"
	NoDevice       SlotChange = "no device found"
	LatchOpen      SlotChange = "latch open"
	LatchClosed    SlotChange = "latch closed"
	Button         SlotChange = "attention button"
	ButtonCancel   SlotChange = "button cancelled"
	PoweringOn     SlotChange = "powering on"
	PoweringOff    SlotChange = "powering off"
	PowerFault     SlotChange = "power fault"
	AlreadyOn      SlotChange = "already enabled"
	AlreadyOff     SlotChange = "already disabled"
	AddFailed      SlotChange = "cannot add device"
)

var slotChanges = [...]struct {
	text   string
	change SlotChange
}{
	{"Card present", CardPresent},
	{"Card not present", CardNotPresent},
	{"Card not", CardNotPresent}, // wrapped
	{"Link Up", LinkUp},
	{"Link up", LinkUp},
	{"Link Down/Up", LinkIgnored},
	{"Link Down", LinkDown},
	{"Link down", LinkDown},
	{"No link", NoLink},
	{"No device found", NoDevice},
	{"No adapter", NoDevice},
	{"Latch open", LatchOpen},
	{"Latch close", LatchClosed},
	{"Attention button pressed", Button},
	{"Button pressed", Button},
	{"Button press: will power on", PoweringOn},
	{"Button press: will power off", PoweringOff},
	{"Button press", Button},
	{"Button cancel", ButtonCancel},
	{"Action canceled", ButtonCancel},
	{"Powering on", PoweringOn},
	{"Powering off", PoweringOff},
	{"Power fault", PowerFault},
	{"Already enabled", AlreadyOn},
	{"Already disabled", AlreadyOff},
}

// Hotplug is one change of a slot; Entry.Device is its port.
type Hotplug struct {
	Slot   string // as printed: "12", "0-1"; "" where not
	Change SlotChange
	DPC    bool // of LinkIgnored: "recovered by DPC"
}

// SlotCapabilities is what a slot can do, printed when its port is probed: a
// port that has one can be hot-plugged.
type SlotCapabilities struct {
	Slot string
	// The bits of the Slot Capabilities register by their names in the
	// line; PresenceIgnored is IbPresDis (in-band presence disabled),
	// LinkReporting is LLActRep.
	Button, PowerController, HotPlug, Surprise, PresenceIgnored, LinkReporting bool
}

// HotplugTimeout says that a slot did not complete a command. Some controllers
// never do: by itself it harms nothing.
type HotplugTimeout struct {
	Command uint16
	Msec    int
}

// LinkStatus is the Link Status register of a port as pciehp read it.
type LinkStatus struct {
	Value uint16
}

func (Hotplug) event()          {}
func (SlotCapabilities) event() {}
func (HotplugTimeout) event()   {}
func (LinkStatus) event()       {}

// hotplug reads the lines of pciehp and shpchp.
func (l *line) hotplug() Event {
	text, tagged := l.text, false
	if l.device == "" {
		text, tagged = strings.CutPrefix(l.message, "pciehp: ")
	} else {
		text, tagged = strings.CutPrefix(text, "pciehp: ")
	}
	if !tagged && l.driver != "pciehp" && l.driver != "shpchp" && !strings.HasPrefix(text, "Slot(") {
		return nil
	}
	if rest, ok := strings.CutPrefix(text, "Slot("); ok {
		slot, rest, closed := strings.Cut(rest, ")")
		if !closed || len(slot) > 32 {
			return nil
		}
		if e, ok := slotChange(slot, strings.TrimLeft(trimPrefix(rest, ":"), " ")); ok {
			return e
		}
		return nil
	}
	switch {
	case strings.HasPrefix(text, "Slot #"):
		slot, rest := word(text[len("Slot #"):])
		bit := func(name string) bool { return strings.Contains(rest, name+"+") }
		return SlotCapabilities{
			Slot: slot, Button: bit("AttnBtn"), PowerController: bit("PwrCtrl"), HotPlug: bit("HotPlug"),
			Surprise: bit("Surprise"), PresenceIgnored: bit("IbPresDis"), LinkReporting: bit("LLActRep"),
		}
	case strings.HasPrefix(text, "Timeout on hotplug"):
		command, found := hexAfter(text, "command ")
		msec, _ := intAfter(text, "issued ")
		if !found && !l.partial {
			return nil
		}
		return HotplugTimeout{Command: uint16(command), Msec: msec}
	case strings.HasPrefix(text, "Device ") && strings.Contains(text, "already exists"),
		strings.HasPrefix(text, "Cannot add device at"),
		strings.HasPrefix(text, "Hotplug bridge without secondary bus"):
		return Hotplug{Change: AddFailed}
	}
	for _, mark := range [...]string{"lnk_status = ", "link training error: status "} {
		if status, found := hexAfter(text, mark); found && status <= 0xffff {
			return LinkStatus{Value: uint16(status)}
		}
	}
	if on, slot, found := strings.Cut(text, " on Slot("); found && l.driver == "shpchp" {
		slot, _, _ = strings.Cut(slot, ")")
		if e, ok := slotChange(slot, on); ok {
			return e
		}
	}
	if e, ok := slotChange("", text); ok {
		return e
	}
	return nil
}

func slotChange(slot, text string) (Hotplug, bool) {
	for _, c := range slotChanges {
		if strings.HasPrefix(text, c.text) {
			return Hotplug{Slot: slot, Change: c.change, DPC: strings.Contains(text, "recovered by DPC")}, true
		}
	}
	return Hotplug{}, false
}
