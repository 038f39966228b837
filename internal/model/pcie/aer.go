package pcie

import (
	"math/bits"
	"strconv"
)

// UncorrectableErrors is a set of bits of the AER Uncorrectable Error Status,
// Mask or Severity register.
type UncorrectableErrors uint32

// CorrectableErrors is a set of bits of the AER Correctable Error Status or
// Mask register.
type CorrectableErrors uint32

// Uncorrectable errors.
const (
	Undefined           UncorrectableErrors = 1 << 0
	DataLinkProtocol    UncorrectableErrors = 1 << 4
	SurpriseDown        UncorrectableErrors = 1 << 5
	PoisonedTLP         UncorrectableErrors = 1 << 12
	FlowControlProtocol UncorrectableErrors = 1 << 13
	CompletionTimeout   UncorrectableErrors = 1 << 14
	CompleterAbort      UncorrectableErrors = 1 << 15
	UnexpectedCompl     UncorrectableErrors = 1 << 16
	ReceiverOverflow    UncorrectableErrors = 1 << 17
	MalformedTLP        UncorrectableErrors = 1 << 18
	ECRCError           UncorrectableErrors = 1 << 19
	UnsupportedRequest  UncorrectableErrors = 1 << 20
	ACSViolation        UncorrectableErrors = 1 << 21
	UncorrInternalError UncorrectableErrors = 1 << 22
	BlockedTLP          UncorrectableErrors = 1 << 23
	AtomicOpBlocked     UncorrectableErrors = 1 << 24
	TLPPrefixBlocked    UncorrectableErrors = 1 << 25
	PoisonedTLPBlocked  UncorrectableErrors = 1 << 26
)

// Correctable errors.
const (
	ReceiverError         CorrectableErrors = 1 << 0
	BadTLP                CorrectableErrors = 1 << 6
	BadDLLP               CorrectableErrors = 1 << 7
	ReplayRollover        CorrectableErrors = 1 << 8
	ReplayTimeout         CorrectableErrors = 1 << 12
	AdvisoryNonFatal      CorrectableErrors = 1 << 13
	CorrectedInternal     CorrectableErrors = 1 << 14
	HeaderLogOverflow     CorrectableErrors = 1 << 15
	linkCorrectableErrors                   = ReceiverError | BadTLP | BadDLLP | ReplayRollover | ReplayTimeout
)

// A Layer is the part of a port in which an error is found.
type Layer string

// The layers, as the kernel names them.
const (
	PhysicalLayer    Layer = "Physical Layer"
	DataLinkLayer    Layer = "Data Link Layer"
	TransactionLayer Layer = "Transaction Layer"
)

type errorBit struct {
	bit   uint8
	short string // as in the kernel's log and lspci
	long  string // as in the specification and the trace event
	layer Layer
	more  []string // other spellings seen
}

var uncorrectable = []errorBit{
	{0, "Undefined", "Undefined", TransactionLayer, nil},
	{4, "DLP", "Data Link Protocol", DataLinkLayer, []string{"Data Link Protocol Error"}},
	{5, "SDES", "Surprise Down Error", DataLinkLayer, []string{"Surprise Link Down", "Surprise Down"}},
	{12, "TLP", "Poisoned TLP", TransactionLayer, nil},
	{13, "FCP", "Flow Control Protocol", TransactionLayer, []string{"Flow Control Protocol Error"}},
	{14, "CmpltTO", "Completion Timeout", TransactionLayer, nil},
	{15, "CmpltAbrt", "Completer Abort", TransactionLayer, nil},
	{16, "UnxCmplt", "Unexpected Completion", TransactionLayer, nil},
	{17, "RxOF", "Receiver Overflow", TransactionLayer, nil},
	{18, "MalfTLP", "Malformed TLP", TransactionLayer, nil},
	{19, "ECRC", "ECRC", TransactionLayer, []string{"ECRC Error", "ERCR"}},
	{20, "UnsupReq", "Unsupported Request", TransactionLayer, []string{"Unsupported Request Error"}},
	{21, "ACSViol", "ACS Violation", TransactionLayer, nil},
	{22, "UncorrIntErr", "Uncorrectable Internal Error", TransactionLayer, []string{"Uncorrected Internal Error"}},
	{23, "BlockedTLP", "MC Blocked TLP", TransactionLayer, []string{"MC Blocked"}},
	{24, "AtomicOpBlocked", "AtomicOp Egress Blocked", TransactionLayer, nil},
	{25, "TLPBlockedErr", "TLP Prefix Blocked Error", TransactionLayer, []string{"TLP Prefix Blocked"}},
	{26, "PoisonTLPBlocked", "Poisoned TLP Egress Blocked", TransactionLayer, nil},
	{27, "DMWrReqBlocked", "DMWr Request Egress Blocked", TransactionLayer, nil},
	{28, "IDECheck", "IDE Check Failed", TransactionLayer, nil},
	{29, "MisIDETLP", "Misrouted IDE TLP", TransactionLayer, nil},
	{30, "PCRC_CHECK", "PCRC Check Failed", TransactionLayer, nil},
	{31, "TLPXlatBlocked", "TLP Translation Egress Blocked", TransactionLayer, nil},
}

var correctable = []errorBit{
	{0, "RxErr", "Receiver Error", PhysicalLayer, nil},
	{6, "BadTLP", "Bad TLP", DataLinkLayer, nil},
	{7, "BadDLLP", "Bad DLLP", DataLinkLayer, nil},
	{8, "Rollover", "RELAY_NUM Rollover", DataLinkLayer, []string{"REPLAY_NUM Rollover"}},
	{12, "Timeout", "Replay Timer Timeout", DataLinkLayer, nil},
	{13, "NonFatalErr", "Advisory Non-Fatal", TransactionLayer, []string{"AdvNonFatalErr", "Advisory Non-Fatal Error"}},
	{14, "CorrIntErr", "Corrected Internal Error", TransactionLayer, nil},
	{15, "HeaderOF", "Header Log Overflow", TransactionLayer, nil},
}

func names(set uint32, table []errorBit) []string {
	var out []string
	for ; set != 0; set &= set - 1 {
		out = append(out, bitName(bits.TrailingZeros32(set), table))
	}
	return out
}

func bitName(bit int, table []errorBit) string {
	for i := range table {
		if int(table[i].bit) == bit {
			return table[i].short
		}
	}
	return "bit " + strconv.Itoa(bit)
}

func layer(set uint32, table []errorBit) Layer {
	for i := range table {
		if set>>table[i].bit&1 != 0 {
			return table[i].layer
		}
	}
	return ""
}

func find(name string, table []errorBit) (uint32, bool) {
	for i := range table {
		e := &table[i]
		if name == e.short || name == e.long {
			return 1 << e.bit, true
		}
		for _, m := range e.more {
			if name == m {
				return 1 << e.bit, true
			}
		}
	}
	return 0, false
}

// Names returns the kernel's short names of the bits in the set, lowest first.
func (e UncorrectableErrors) Names() []string { return names(uint32(e), uncorrectable) }

// Names returns the kernel's short names of the bits in the set, lowest first.
func (e CorrectableErrors) Names() []string { return names(uint32(e), correctable) }

// Layer returns the layer of the lowest bit of the set, "" for an empty set.
func (e UncorrectableErrors) Layer() Layer { return layer(uint32(e), uncorrectable) }

// Layer returns the layer of the lowest bit of the set, "" for an empty set.
func (e CorrectableErrors) Layer() Layer { return layer(uint32(e), correctable) }

// Link returns the errors of the set that the link itself makes: receiver
// errors, bad packets and replays.
func (e CorrectableErrors) Link() CorrectableErrors { return e & linkCorrectableErrors }

// UncorrectableByName finds a bit by any of its names: the short one of the
// kernel and lspci, the long one of the specification.
func UncorrectableByName(name string) (UncorrectableErrors, bool) {
	b, ok := find(name, uncorrectable)
	return UncorrectableErrors(b), ok
}

// CorrectableByName finds a bit by any of its names.
func CorrectableByName(name string) (CorrectableErrors, bool) {
	b, ok := find(name, correctable)
	return CorrectableErrors(b), ok
}
