package compared

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// page is what is written of all answers.
type page struct {
	versions map[string]string // by module
	beyond   string            // what nobody else can be asked
	rows     []string
	failures []string
	whys     []string // why somebody was not asked, in order
	unasked  map[string][]string
}

func newPage(t *testing.T) *page {
	return &page{versions: versions(t), beyond: tellBeyond(t), unasked: map[string][]string{}}
}

func (p *page) add(of property, who peer, r result) {
	if who.name == peers[0].name {
		p.rows = append(p.rows, "| "+of.name+" |")
	}
	p.rows[len(p.rows)-1] += " " + r.verdict.String() + " |"
	if r.verdict == fails {
		line := fmt.Sprintf("- **%s**, %s. %s.", who.name, lowerFirst(of.name), upperFirst(r.history))
		if told := who.documented[of.name]; told != "" {
			line += " " + told + "."
		}
		p.failures = append(p.failures, line)
	}
	if r.verdict == notAsked {
		p.because(who.name, r.history)
	}
}

// because notes a reason once, and who has it.
func (p *page) because(who, why string) {
	if p.unasked[why] == nil {
		p.whys = append(p.whys, why)
	}
	if !slices.Contains(p.unasked[why], who) {
		p.unasked[why] = append(p.unasked[why], who)
	}
}

func lowerFirst(s string) string { return strings.ToLower(s[:1]) + s[1:] }

func upperFirst(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

func (p *page) text() string {
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	say("# Limiters compared\n")
	say("What AgentGate's limiter promises of one bucket, asked of other limiters for Go. Each line is a check in")
	say("`bench/compared`, a few lines long; `make compare` runs them all and writes this page, and `make check` fails when")
	say("it is out of step. Where a library fails, the shortest history that shows it is below, to be worked out by hand.\n")
	say("This is no ranking. The libraries are small, used everywhere, and do what they were written for: `x/time/rate`")
	say("to wait for one's turn, go-limiter to count in fixed windows, redis_rate to share a limit, throttled to stand")
	say("before an HTTP handler. What is asked here is what a gateway owes to callers who do not mean well.\n")
	say("| asked | version | how it is used here |\n|---|---|---|")
	for _, who := range peers {
		version := "this one"
		if who.module != "" {
			version = p.versions[who.module]
		}
		say("| %s | %s | %s |", who.name, version, who.how)
	}
	say("\n| property |%s", cells(func(who peer) string { return who.name }))
	say("|---|%s", cells(func(peer) string { return "---" }))
	say("%s\n", strings.Join(p.rows, "\n"))
	say("*has none*: the library does not offer what it takes. AgentGate has no cost other than 1 and no refund by hand.")
	say("*not asked*: it could not be put to it, as")
	for _, why := range p.whys {
		say("- %s (%s)", why, strings.Join(p.unasked[why], ", "))
	}
	say("\nDifferences of up to %v in time are passed over: some calculate in fractions.\n", rounding)
	say("## Where one fails\n\n%s\n", strings.Join(p.failures, "\n"))
	say("redis_rate ran over miniredis, whose time can be set. Its failures, but for that of the clock, were seen on a Redis 7.0 too.\n")
	say("## What only a limiter of this shape can be asked\n")
	say("`internal/ratelimit/limitertest` is what every limiter of AgentGate owes, and goes on where these libraries end. None")
	say("of them could be asked what its tests ask about:\n\n%s", strings.TrimSuffix(p.beyond, "\n"))
	return b.String()
}

func cells(of func(peer) string) string {
	var b strings.Builder
	for _, who := range peers {
		b.WriteString(" " + of(who) + " |")
	}
	return b.String()
}

// versions reads them from go.mod.
func versions(t *testing.T) map[string]string {
	text, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^(?:require)?\s+(\S+) (v\S+)`).FindAllStringSubmatch(string(text), -1) {
		found[m[1]] = m[2]
	}
	for _, who := range peers {
		if who.module != "" && found[who.module] == "" {
			t.Fatalf("no version of %s in go.mod", who.module)
		}
	}
	return found
}

// beyond are tests of AgentGate's suite that are about more than one bucket.
var beyond = []struct {
	about string
	tests []string
}{
	{"several limits, decided all or none", []string{"AllOrNothing", "AgainstNaiveAccounts", "ATenantIsNotDrainedByOneKey"}},
	{"slots, taken with the tokens and given back once", []string{"ChangesOfCap", "ReleaseIsOnce", "ReleaseAfterPanic", "PeakNeverExceedsTheCap", "ASharedSlotIsOne", "ATenantIsLinearizable"}},
	{"refusals for want of a slot, which cost no token", []string{"ConcurrencyRefusalsAreFree"}},
	{"waiting for a slot, in order and bounded", []string{"FirstComeFirstServed", "NobodyOvertakes", "TokensAreTakenOnce", "LeavingGivesAllBack", "WaitingIsBounded", "CapsInForce", "PeakWithAQueue", "QueueAgainstANaiveBook", "AQueueIsLinearizable"}},
	{"rules, which count in fixed windows, together with all of that", []string{"RulesCountExactly", "RulesAreAllOrNothing", "RulesInAnyOrder", "RulesAgainstNaiveSums", "CountsComeBackInTheirWindow"}},
}

// tellBeyond tells of them, and that each is there.
func tellBeyond(t *testing.T) string {
	text, err := os.ReadFile("../../internal/ratelimit/limitertest/limitertest.go")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, group := range beyond {
		for _, name := range group.tests {
			if !strings.Contains(string(text), `{"`+name+`", `) {
				t.Errorf("no test %s in the suite", name)
			}
		}
		fmt.Fprintf(&b, "- %s (`%s`)\n", group.about, strings.Join(group.tests, "`, `"))
	}
	return b.String()
}
