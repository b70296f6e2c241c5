package registry

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// TestWhenAFileIsRead: what is being written to is left alone until it is calm,
// by the net too, but not for ever; what is gone has two seconds to come back.
func TestWhenAFileIsRead(t *testing.T) {
	a, b, c, gone := sight{size: 1}, sight{size: 2}, sight{size: 3}, sight{}
	type step struct {
		now   sight
		why   occasion
		read  bool
		again time.Duration
	}
	const ms = time.Millisecond
	for name, steps := range map[string][]step{
		"a write":             {{b, event, false, 250 * ms}, {b, calm, true, 0}},
		"two writes":          {{b, event, false, 250 * ms}, {c, event, false, 250 * ms}, {c, calm, true, 0}},
		"another file's":      {{a, event, false, 0}, {a, event, false, 0}},
		"seen when calm":      {{b, event, false, 250 * ms}, {c, calm, false, 250 * ms}, {c, calm, true, 0}},
		"the net":             {{a, tick, true, 0}, {a, tick, true, 0}},
		"the net sees it":     {{b, tick, false, 250 * ms}, {b, calm, true, 0}, {b, tick, true, 0}},
		"the net in a write":  {{b, event, false, 250 * ms}, {b, tick, false, 0}, {c, event, false, 250 * ms}, {c, calm, true, 0}, {c, tick, true, 0}, {c, tick, true, 0}},
		"never calm":          {{b, event, false, 250 * ms}, {c, tick, false, 250 * ms}, {a, event, false, 250 * ms}, {b, tick, true, 250 * ms}, {c, event, false, 250 * ms}, {b, tick, false, 250 * ms}, {c, tick, true, 250 * ms}},
		"read late, and calm": {{b, event, false, 250 * ms}, {b, tick, false, 0}, {b, tick, true, 0}, {b, calm, false, 0}},
		"gone for a moment":   {{gone, event, false, 250 * ms}, {gone, calm, false, 250 * ms}, {b, event, false, 250 * ms}, {b, calm, true, 0}},
		"gone, the same back": {{gone, event, false, 250 * ms}, {a, calm, false, 250 * ms}, {a, calm, true, 0}},
		"gone": append(slices.Concat([]step{{gone, event, false, 250 * ms}}, slices.Repeat([]step{{gone, calm, false, 250 * ms}}, 7)),
			step{gone, calm, true, 2000 * ms}, step{gone, calm, false, 2000 * ms}, step{gone, tick, true, 0}, step{gone, calm, false, 2000 * ms},
			step{b, calm, false, 250 * ms}, step{b, calm, true, 0}, step{b, event, false, 0}, step{gone, event, false, 250 * ms}, step{gone, calm, false, 250 * ms}),
		"gone by the net": {{gone, tick, false, 250 * ms}, {gone, calm, false, 250 * ms}, {gone, tick, true, 0}, {gone, calm, false, 250 * ms}},
	} {
		file := rest{seen: a}
		for i, s := range steps {
			if read, again := file.look(s.now, s.why); read != s.read || again != s.again {
				t.Errorf("%s, step %d: %s", name, i, fmt.Sprint("read ", read, ", again after ", again, "; want ", s.read, " and ", s.again))
			}
		}
	}
}
