package limitertest

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"agentgw/internal/ratelimit"
)

// sums are the naive account of rules: all that was ever counted, one by one.
type sums []counted

type counted struct {
	rule, partition string
	unix, n         int64
}

// in adds up what a partition key counted in the window of unix.
func (b sums) in(r *ratelimit.Rule, partition string, unix int64) (used int64) {
	length := int64(r.Window())
	for _, c := range b {
		if c.rule == r.Name() && c.partition == partition && c.unix/length == unix/length {
			used += c.n
		}
	}
	return used
}

// rulesAgainstNaiveSums drives calls that meet one to three rules, and what they
// count later, in time that advances, and compares every verdict and every count.
func rulesAgainstNaiveSums(t *testing.T, make Maker) {
	long(t)
	rapid.Check(t, func(t *rapid.T) {
		s := make(t)
		rules := []*ratelimit.Rule{
			ratelimit.NewRule("a", "x", 7*time.Millisecond, false),
			ratelimit.NewRule("b", "x", 20*time.Millisecond, false),
			ratelimit.NewRule("c", "x", 20*time.Millisecond, true),
		}
		var book sums
		var running []ratelimit.Use
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			s.Advance(time.Duration(rapid.IntRange(0, 8).Draw(t, "advance")) * time.Millisecond)
			unix := s.Epoch + s.Now()
			if len(running) > 0 && rapid.IntRange(0, 4).Draw(t, "op") == 0 {
				u, n := &running[0], rapid.Int64Range(0, 4).Draw(t, "more")
				s.Count(u, n, s.Now())
				book = append(book, counted{u.Rule.Name(), u.Partition, unix, n})
				running = running[1:]
				continue
			}
			var uses []ratelimit.Use
			for _, r := range rules {
				if rapid.Bool().Draw(t, "meets") {
					uses = append(uses, use(r, rapid.SampledFrom([]string{"p", "q"}).Draw(t, "partition"),
						rapid.Int64Range(0, 3).Draw(t, "count"), rapid.Int64Range(0, 6).Draw(t, "max")))
				}
			}
			want, refuses := ratelimit.Admitted, map[string]bool{}
			for _, u := range uses {
				refuses[u.Rule.Name()] = u.Count > 0 && book.in(u.Rule, u.Partition, unix)+u.Count > u.Max
				if refuses[u.Rule.Name()] && !u.Rule.Observes() {
					want = ratelimit.RateLimited
				}
			}
			_, v := s.admit(ratelimit.Admission{Service: anything, Uses: uses})
			if v.Outcome != want {
				t.Fatalf("at %d: %v, want %v", unix, v.Outcome, want)
			}
			for _, u := range uses {
				if u.Refused() != refuses[u.Rule.Name()] {
					t.Fatalf("at %d: %s refuses: %v", unix, u.Rule.Name(), u.Refused())
				}
				if want == ratelimit.Admitted && !u.Refused() {
					book = append(book, counted{u.Rule.Name(), u.Partition, unix, u.Count})
					running = append(running, u)
				}
			}
			for _, r := range rules {
				for _, p := range []string{"p", "q"} {
					if n := s.counted(r, p); n != book.in(r, p, unix) {
						t.Fatalf("at %d: %s has counted %d for %s, by the book %d", unix, r.Name(), n, p, book.in(r, p, unix))
					}
				}
			}
		}
	})
}
