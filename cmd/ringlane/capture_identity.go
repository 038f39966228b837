package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"ringlane/internal/model/machine"
)

// machineKey makes placeholders that are the same in every capture of this
// machine and tell nobody else anything: the machine's own identifier is the
// secret. Where it has none they differ from capture to capture.
func machineKey() []byte {
	id, err := os.ReadFile("/etc/machine-id")
	if err != nil || len(bytes.TrimSpace(id)) == 0 {
		id = make([]byte, 32)
		if _, err := rand.Read(id); err != nil {
			return nil
		}
	}
	sum := sha256.Sum256(append([]byte("ringlane capture "), id...))
	return sum[:]
}

// What names a machine or a card wherever it stands in a text. A PCI address
// has fewer fields than a MAC address, and a Device Serial Number more.
var (
	uuids   = regexp.MustCompile(`(?i)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`)
	macs    = regexp.MustCompile(`(?i)\b[0-9a-f]{2}(?::[0-9a-f]{2}){5}(?:(?::[0-9a-f]{2}){2})?\b`)
	dsns    = regexp.MustCompile(`(?i)\b[0-9a-f]{2}(?:-[0-9a-f]{2}){7}\b`)
	serials = regexp.MustCompile(`(?i)(serial ?(?:number|no\.?)?(?: is|:|=)\s*)([^\s,;\]]+)`)
)

// mask replaces what names a machine by made-up values of the same shape.
type mask struct {
	key   []byte
	exact []string // names known from the document, longest first
}

// withoutIdentity returns the document with every identity replaced.
func withoutIdentity(m *machine.Machine, key []byte) (*machine.Machine, error) {
	k := mask{key: key}
	add := func(names ...string) {
		for _, n := range names {
			if len(n) > 2 && n != "localhost" && n != "N/A" && !slices.Contains(k.exact, n) {
				k.exact = append(k.exact, n)
			}
		}
	}
	short, _, _ := strings.Cut(m.Host, ".")
	add(m.Host, short)
	for _, d := range m.Devices {
		if d.GPU != nil {
			add(d.GPU.UUID, d.GPU.Serial)
		}
		add(d.Registers.Serial)
	}
	if m.NCCL != nil {
		for _, c := range m.NCCL.CPUs {
			add(c.HostHash)
		}
		for _, n := range m.NCCL.Nodes {
			for _, net := range n.Nets {
				add(net.GUID)
			}
		}
		for _, r := range m.NCCL.Ranks {
			add(r.Host)
		}
	}
	slices.SortStableFunc(k.exact, func(a, b string) int { return len(b) - len(a) })

	var text bytes.Buffer
	if err := m.Save(&text); err != nil { // with the lines of its log
		return nil, fmt.Errorf("replace identities: %w", err)
	}
	var tree any
	decoder := json.NewDecoder(&text)
	decoder.UseNumber()
	if err := decoder.Decode(&tree); err != nil {
		return nil, fmt.Errorf("replace identities: %w", err)
	}
	masked, err := json.Marshal(k.walk(tree))
	if err != nil {
		return nil, fmt.Errorf("replace identities: %w", err)
	}
	out := &machine.Machine{}
	if err := json.Unmarshal(masked, out); err != nil {
		return nil, fmt.Errorf("replace identities: %w", err)
	}
	return out, nil
}

func (k mask) walk(v any) any {
	switch v := v.(type) {
	case string:
		return k.text(v)
	case []any:
		for i := range v {
			v[i] = k.walk(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = k.walk(v[key])
		}
	}
	return v
}

// text replaces in one string.
func (k mask) text(s string) string {
	// What is known by name goes first, and out of the way of the patterns.
	var held []string
	hold := func(value string) string {
		held = append(held, value)
		return fmt.Sprintf("\x00%d\x00", len(held)-1)
	}
	for _, name := range k.exact {
		s = replaceWord(s, name, func() string { return hold(k.like(name)) })
	}
	s = serials.ReplaceAllStringFunc(s, func(found string) string {
		part := serials.FindStringSubmatch(found)
		if strings.HasPrefix(part[2], "\x00") || part[2] == "N/A" {
			return found
		}
		return part[1] + hold(k.like(part[2]))
	})
	for _, pattern := range []*regexp.Regexp{uuids, dsns, macs} {
		s = pattern.ReplaceAllStringFunc(s, func(found string) string { return hold(k.like(found)) })
	}
	for i := len(held) - 1; i >= 0; i-- {
		s = strings.ReplaceAll(s, fmt.Sprintf("\x00%d\x00", i), held[i])
	}
	return s
}

// replaceWord replaces name where it is not part of a longer word.
func replaceWord(s, name string, with func() string) string {
	var out strings.Builder
	for {
		i := strings.Index(s, name)
		if i < 0 {
			out.WriteString(s)
			return out.String()
		}
		end := i + len(name)
		if i > 0 && isWord(s[i-1]) || end < len(s) && isWord(s[end]) {
			out.WriteString(s[:end])
		} else {
			out.WriteString(s[:i] + with())
		}
		s = s[end:]
	}
}

func isWord(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// like makes up a value of the same shape: digits of hexadecimal identities
// stay such digits, anything else becomes a name.
func (k mask) like(value string) string {
	h := hmac.New(sha256.New, k.key)
	h.Write([]byte(strings.ToLower(value)))
	digits := hex.EncodeToString(h.Sum(nil))
	body, prefix := value, ""
	for _, p := range []string{"GPU-", "MIG-", "0x"} {
		if rest, ok := strings.CutPrefix(value, p); ok {
			body, prefix = rest, p
		}
	}
	if strings.Trim(body, "0123456789abcdefABCDEF-:.") != "" || len(body) < 8 {
		return "x" + digits[:min(12, max(6, len(value)))]
	}
	out := []byte(body)
	for i, n := 0, 0; i < len(out); i++ {
		if isWord(out[i]) {
			out[i] = digits[n%len(digits)]
			n++
		}
	}
	return prefix + string(out)
}
