package pcie

// classNames are lspci's names of base class and sub-class, for the classes
// that occur in machines with GPUs.
var classNames = map[uint16]string{
	0x0000: "Non-VGA unclassified device", 0x0001: "VGA compatible unclassified device",
	0x0100: "SCSI storage controller", 0x0101: "IDE interface", 0x0104: "RAID bus controller",
	0x0105: "ATA controller", 0x0106: "SATA controller", 0x0107: "Serial Attached SCSI controller",
	0x0108: "Non-Volatile memory controller", 0x0180: "Mass storage controller",
	0x0200: "Ethernet controller", 0x0207: "Infiniband controller", 0x0208: "Fabric controller",
	0x0280: "Network controller",
	0x0300: "VGA compatible controller", 0x0302: "3D controller", 0x0380: "Display controller",
	0x0400: "Multimedia video controller", 0x0401: "Multimedia audio controller", 0x0403: "Audio device",
	0x0480: "Multimedia controller",
	0x0500: "RAM memory", 0x0501: "FLASH memory", 0x0502: "CXL", 0x0580: "Memory controller",
	0x0600: "Host bridge", 0x0601: "ISA bridge", 0x0604: "PCI bridge",
	0x0609: "Semi-transparent PCI-to-PCI bridge", 0x060a: "InfiniBand to PCI host bridge", 0x0680: "Bridge",
	0x0700: "Serial controller", 0x0780: "Communication controller",
	0x0800: "PIC", 0x0801: "DMA controller", 0x0805: "SD Host controller", 0x0806: "IOMMU",
	0x0807: "Generic system peripheral", 0x0880: "System peripheral",
	0x0c00: "FireWire (IEEE 1394)", 0x0c80: "Serial bus controller", 0xff00: "Unassigned class", 0x0c03: "USB controller", 0x0c04: "Fibre Channel", 0x0c05: "SMBus", 0x0c06: "InfiniBand", 0x0c07: "IPMI Interface",
	0x0d00: "IRDA controller", 0x0d80: "Wireless controller", 0x0d11: "Bluetooth",
	0x1000: "Network and computing encryption device", 0x1080: "Encryption controller",
	0x1101: "Performance counters", 0x1180: "Signal processing controller",
	0x1200: "Processing accelerators", 0x1300: "Non-Essential Instrumentation",
}

var classCodes = func() map[string]uint16 {
	m := make(map[string]uint16, len(classNames))
	for code, name := range classNames {
		m[name] = code
	}
	return m
}()

// ClassName returns lspci's name of a class code (0x030200), "" if this
// package has none.
func ClassName(class uint32) string { return classNames[uint16(class>>8)] }

// ClassByName returns the class code, with programming interface 0, for
// lspci's name of a class.
func ClassByName(name string) (uint32, bool) {
	c, ok := classCodes[name]
	return uint32(c) << 8, ok
}

// vendorNames are the makers of what sits in and around the tree of a machine
// with GPUs, as lspci writes them.
var vendorNames = map[uint16]string{
	0x1000: "Broadcom / LSI", 0x1002: "Advanced Micro Devices, Inc. [AMD/ATI]",
	0x1022: "Advanced Micro Devices, Inc. [AMD]", 0x102b: "Matrox Electronics Systems Ltd.",
	0x10b5: "PLX Technology, Inc.", 0x10de: "NVIDIA Corporation", 0x10ec: "Realtek Semiconductor Co., Ltd.",
	0x10ee: "Xilinx Corporation", 0x111d: "Integrated Device Technology, Inc.", 0x11f8: "Microchip Technology",
	0x1234: "QEMU", 0x126f: "Silicon Motion, Inc.", 0x12d8: "Pericom Semiconductor", 0x1414: "Microsoft Corporation",
	0x144d: "Samsung Electronics Co Ltd", 0x14e4: "Broadcom Inc. and subsidiaries", 0x15ad: "VMware",
	0x15b3: "Mellanox Technologies", 0x15b7: "SanDisk", 0x1912: "Renesas Electronics Corp.", 0x1a03: "ASPEED Technology, Inc.",
	0x1ae0: "Google, Inc.", 0x1af4: "Red Hat, Inc.", 0x1b21: "ASMedia Technology Inc.", 0x1b36: "Red Hat, Inc. QEMU",
	0x1b4b: "Marvell Technology Group Ltd.", 0x1bb1: "Seagate Technology PLC", 0x1c5c: "SK hynix", 0x1cc1: "ADATA Technology Co., Ltd.",
	0x1d0f: "Amazon.com, Inc.", 0x1d94: "Chengdu Haiguang IC Design Co., Ltd.", 0x1df4: "H3C", 0x1e0f: "KIOXIA Corporation",
	0x1344: "Micron Technology Inc", 0x19e5: "Huawei Technologies Co., Ltd.", 0x1077: "QLogic Corp.", 0x1137: "Cisco Systems Inc",
	0x18a1: "Astera Labs, Inc.", 0x1fc1: "Cornelis Networks", 0x8086: "Intel Corporation", 0x80ee: "InnoTek Systemberatung GmbH",
	0x025e: "Solidigm", 0x10df: "Emulex Corporation", 0x1103: "HighPoint Technologies, Inc.", 0x1556: "PLDA",
	0x168c: "Qualcomm Atheros", 0x1924: "AMD Solarflare", 0x1987: "Phison Electronics Corporation",
	0x2646: "Kingston Technology Company, Inc.", 0x5853: "XenSource, Inc.", 0xc0a9: "Micron/Crucial Technology", 0x9005: "Adaptec",
}

// otherVendorNames are spellings of older and newer lists.
var otherVendorNames = map[string]uint16{
	"LSI Logic / Symbios Logic": 0x1000, "Broadcom / LSI": 0x1000, "nVidia Corporation": 0x10de,
	"Broadcom": 0x14e4, "Broadcom Limited": 0x14e4, "Broadcom Corporation": 0x14e4,
	"Advanced Micro Devices [AMD] nee ATI": 0x1002, "Advanced Micro Devices [AMD/ATI]": 0x1002, "ATI Technologies Inc": 0x1002,
	"Advanced Micro Devices [AMD]": 0x1022, "PLX Technology": 0x10b5, "PLX Technology, Inc": 0x10b5,
	"PMC-Sierra Inc.": 0x11f8, "Microsemi / PMC / IDT": 0x11f8, "Mellanox Technologies, Ltd.": 0x15b3,
	"Red Hat, Inc": 0x1af4, "Intel Corp.": 0x8086, "ASPEED Technology": 0x1a03, "Amazon.com, Inc": 0x1d0f,
	"Matrox Graphics, Inc.": 0x102b, "Samsung Electronics Co Ltd NVMe": 0x144d, "ASMedia Technology": 0x1b21,
	"Renesas Technology Corp.": 0x1912, "Solarflare Communications": 0x1924, "Toshiba Corporation": 0x1179, "Sandisk Corp": 0x15b7,
}

var vendorCodes = func() map[string]uint16 {
	m := make(map[string]uint16, len(vendorNames)+len(otherVendorNames))
	for code, name := range vendorNames {
		m[name] = code
	}
	for name, code := range otherVendorNames {
		m[name] = code
	}
	return m
}()

// VendorName returns the name of a vendor, "" if this package has none.
func VendorName(vendor uint16) string { return vendorNames[vendor] }

// VendorByName returns the identifier of a vendor by the name that lspci
// prints.
func VendorByName(name string) (uint16, bool) {
	v, ok := vendorCodes[name]
	return v, ok
}

// SplitVendor finds the vendor at the start of lspci's "vendor model" text.
// Where the vendor is not known here, it is taken to end after a word that
// ends company names; without one, the whole text is the model.
func SplitVendor(text string) (vendor uint16, known bool, name, model string) {
	for i := 0; i <= len(text); i++ {
		if i < len(text) && text[i] != ' ' {
			continue
		}
		if v, ok := vendorCodes[text[:i]]; ok {
			vendor, known, name, model = v, true, text[:i], text[min(i+1, len(text)):]
		}
	}
	if known {
		return vendor, known, name, model
	}
	return 0, false, "", text
}
