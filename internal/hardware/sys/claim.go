package sys

// Claim asks for the cache lines of mem as if to write to them, and changes
// nothing. A line that its reader holds alone goes to the next writer in one
// transfer, and many at a time; one that both hold has to be taken away from
// the other first, line by line, which on AMD's processors takes 4 to 10 times
// as long. So whoever reads what another one writes over and over claims it
// first. It costs what the reading would have cost.
func Claim(mem []byte) {
	if len(mem) > 0 {
		claim(&mem[0], len(mem))
	}
}

// ClaimsTell reports whether Claim takes as long as the lines take to come, so that
// its duration says how far they were. Where it only asks for them, to claim more than
// a few lines holds up the reads of them.
func ClaimsTell() bool { return claimsTell }

// Fetch asks for the cache lines of mem, which is soon written to from end to end, where
// that is of use: stores get lines that another core has one after the other, and ask for
// few of them ahead. It waits for nothing and changes nothing.
func Fetch(mem []byte) {
	if fetches && len(mem) > 0 {
		claim(&mem[0], len(mem))
	}
}

// Fetches reports whether Fetch does anything.
func Fetches() bool { return fetches }
