package identity_test

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"agentgw/internal/identity"
)

// stored is a directory of n keys, and the headers of as many strangers.
func stored(t testing.TB, n, strangers int) (d *identity.Directory, bad []http.Header) {
	t.Helper()
	keys := make([]*identity.Key, n)
	for i := range keys {
		_, digest := identity.NewKey()
		keys[i] = &identity.Key{ID: fmt.Sprintf("key-%d", i), Digest: digest}
	}
	d, err := identity.NewDirectory(keys)
	if err != nil {
		t.Fatal(err)
	}
	for range strangers {
		text, _ := identity.NewKey()
		bad = append(bad, http.Header{"Authorization": {"Bearer " + text.Reveal()}})
	}
	return d, bad
}

// TestStrangersCostTheSameHoweverManyKeys: 1,000 bad keys cost within a tenth as much
// CPU with 10,000 keys stored as with 10. With DRILLS=full it is the figure that is
// asked for; otherwise only that nobody goes through the keys one by one, which would
// be hundreds of times as much.
func TestStrangersCostTheSameHoweverManyKeys(t *testing.T) {
	few, bad := stored(t, 10, 1000)
	many, _ := stored(t, 10_000, 0)
	rounds, most := 20, 5.0
	if os.Getenv("DRILLS") == "full" {
		rounds, most = 2000, 1.1
	}
	cost := func(d *identity.Directory) time.Duration {
		began := time.Now()
		for _, h := range bad {
			if _, err := d.Authenticate(h, noon); err == nil {
				t.Fatal("a stranger was let in")
			}
		}
		return time.Since(began)
	}
	// One goroutine that never waits: the fastest rounds are those that nobody
	// interrupted, and their time is CPU time.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var ofFew, ofMany []time.Duration
	for range rounds {
		ofFew, ofMany = append(ofFew, cost(few)), append(ofMany, cost(many))
	}
	slices.Sort(ofFew)
	slices.Sort(ofMany)
	at := rounds / 10
	ratio := float64(ofMany[at]) / float64(ofFew[at])
	t.Logf("1,000 bad keys cost %v with 10 keys stored and %v with 10,000: %.3f times as much", ofFew[at], ofMany[at], ratio)
	if ratio > most {
		t.Errorf("%.3f times as much", ratio)
	}
}

// TestTimeTellsNoKey: a key that begins like one that is stored takes the same way where
// that one is stored and where it is not: as many allocations. And the same time, by
// Welch's t-test over 20,000 samples, interleaved: that is a drill, for a machine that
// does nothing else (DRILLS=full). The same texts are asked of both, since what a text
// takes to be read is some nanoseconds more or less, whatever is stored.
func TestTimeTellsNoKey(t *testing.T) {
	var known []string
	var directories [2]*identity.Directory // with the keys that begin so, and with others
	for i := range directories {
		var keys []*identity.Key
		for n := range 16 {
			text, digest := identity.NewKey()
			keys = append(keys, &identity.Key{ID: fmt.Sprint(n), Digest: digest})
			if i == 0 {
				known = append(known, text.Reveal()[:39])
			}
		}
		d, err := identity.NewDirectory(keys)
		if err != nil {
			t.Fatal(err)
		}
		directories[i] = d
	}
	bad := func(i int) string { // with a checksum that is right
		text, _ := identity.NewKey()
		return "Bearer " + identity.WithChecksum(known[i%len(known)]+text.Reveal()[39:47])
	}
	var costs [2]float64
	for i, d := range directories {
		h := http.Header{"Authorization": {bad(0)}}
		costs[i] = testing.AllocsPerRun(100, func() {
			if _, err := d.Authenticate(h, noon); !errors.Is(err, identity.ErrUnauthenticated) {
				t.Fatal(err)
			}
		})
	}
	if costs[0] != costs[1] {
		t.Errorf("a near miss takes %v allocations, a stranger %v", costs[0], costs[1])
	}
	t.Run("by the clock", func(t *testing.T) { timeTellsNoKey(t, directories, bad) })
}

func timeTellsNoKey(t *testing.T, directories [2]*identity.Directory, bad func(int) string) {
	if os.Getenv("DRILLS") != "full" {
		t.Skip("DRILLS=full has it measured")
	}
	const samples, batch = 20_000, 64
	var took [2][]float64
	var headers [batch]http.Header
	for i := range headers {
		headers[i] = http.Header{"Authorization": {""}}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for i := range samples {
		which := (i ^ i>>1) & 1 // near, stranger, stranger, near: neither is always first
		if i%2 == 0 {           // a text is asked of both
			for n, h := range headers {
				h["Authorization"][0] = bad(n)
			}
		}
		began := time.Now()
		for _, h := range headers {
			if _, err := directories[which].Authenticate(h, noon); err == nil {
				t.Fatal("a stranger was let in")
			}
		}
		took[which] = append(took[which], float64(time.Since(began)))
	}
	welch := func(a, b []float64) float64 {
		ma, va := moments(a)
		mb, vb := moments(b)
		return (ma - mb) / math.Sqrt(va/float64(len(a))+vb/float64(len(b)))
	}
	// What interrupts a sample is not its own: the slowest twentieth of each is left out.
	for i := range took {
		slices.Sort(took[i])
		took[i] = took[i][:len(took[i])*19/20]
	}
	score := welch(took[0], took[1])
	t.Logf("Welch's t over 2 x %d samples is %.2f", len(took[0]), score)
	if math.Abs(score) >= 4.5 {
		t.Errorf("t is %.2f: time tells them apart", score)
	}
}

func moments(x []float64) (mean, variance float64) {
	for _, v := range x {
		mean += v
	}
	mean /= float64(len(x))
	for _, v := range x {
		variance += (v - mean) * (v - mean)
	}
	return mean, variance / float64(len(x)-1)
}
