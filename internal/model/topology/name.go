package topology

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"ringlane/internal/model/machine"
	"ringlane/internal/model/pcie"
)

// deviceName is a short name for people: the product where a list of PCI
// identifiers gives it in brackets, the maker and model otherwise.
func deviceName(d *machine.Device) string { return Printable(rawName(d)) }

// Printable replaces what a terminal or an XML file must not be handed: names
// come from whatever was read.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

func rawName(d *machine.Device) string {
	if d.GPU != nil && d.GPU.Name != "" {
		return d.GPU.Name
	}
	maker, model := makerName(d), d.Model.Name
	if strings.HasPrefix(model, "Device ") && d.Model.Known {
		model = "" // the list did not know it
	}
	if at := strings.LastIndex(model, " ["); at >= 0 && strings.HasSuffix(model, "]") {
		model = model[at+2 : len(model)-1]
	}
	if maker == "" {
		model = shortModel(model)
	}
	switch {
	case model != "" && strings.HasPrefix(model, maker):
		return model
	case model != "":
		return strings.TrimSpace(maker + " " + model)
	case d.Model.Known && maker != "":
		return fmt.Sprintf("%s device %04x", maker, d.Model.Code)
	case d.Model.Known && d.Vendor.Known:
		return fmt.Sprintf("device %04x:%04x", d.Vendor.Code, d.Model.Code)
	case maker != "":
		return maker
	}
	return d.Class.Name
}

// makerName is the vendor's name without its legal form: "NVIDIA", "Samsung".
func makerName(d *machine.Device) string {
	name := d.Vendor.Name
	if name == "" && d.Vendor.Known {
		name = pcie.VendorName(d.Vendor.Code)
	}
	if name == "" {
		return ""
	}
	if at := strings.LastIndex(name, " ["); at >= 0 && strings.HasSuffix(name, "]") {
		name, _, _ = strings.Cut(name[at+2:len(name)-1], "/")
		return name
	}
	return shortMaker(name)
}

// legal are the words at which the name of a company stops to be of interest.
var legal = []string{"Corporation", "Corp", "Inc", "Co", "Ltd", "Limited", "LLC", "PLC", "AG", "GmbH",
	"Technology", "Technologies", "Semiconductor", "Electronics", "Systems", "Computer", "International", "/"}

func shortMaker(name string) string {
	words := strings.Fields(name)
	for i, w := range words {
		if i > 0 && slices.Contains(legal, strings.TrimRight(w, ".,")) {
			words = words[:i]
			break
		}
	}
	return strings.TrimRight(strings.Join(words, " "), ",")
}

// shortModel drops a company's form from a model that still has the maker in
// front: "Emulex Corporation OneConnect" is "Emulex OneConnect".
func shortModel(model string) string {
	for _, form := range []string{", Inc. ", " Inc. ", " Corporation ", " Co., Ltd. ", " Ltd. ", " Technology Co., Ltd. "} {
		if maker, product, ok := strings.Cut(model, form); ok {
			return shortMaker(maker) + " " + product
		}
	}
	return model
}
