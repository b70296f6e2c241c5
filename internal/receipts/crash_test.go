package receipts_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/receipts"
)

// moment is a call of the disk that is about to happen: what the disk is before it,
// and what had been promised to the outside by then.
type moment struct {
	before *receipts.SimDisk
	call   receipts.SimCall
	size   uint64 // entries that were acknowledged
	anchor []byte // the newest checkpoint that anybody may have kept; nil: none
}

func (m moment) String() string { return fmt.Sprintf("call %d (%s)", m.call.N, m.call) }

// life is a log's, over a simulated disk, with each moment at which it may end.
type life struct {
	vkey    string
	moments []moment
	leaves  map[uint64][32]byte // of what Append has returned
	ids     map[uint64]string
}

// simData is the data folder. Nothing of it is there before the first start.
const simData = "/srv/agentgw/data"

// simOptions are those of a log on d, with small segments.
func simOptions(d *receipts.SimDisk, clock clockwork.Clock) receipts.Options {
	o := receipts.Options{Clock: clock, Replica: "gw-1"}
	receipts.SetSimDisk(&o, d)
	receipts.SetSegmentSize(&o, 24<<10)
	return o
}

// live begins a log on an empty disk and appends so many receipts, some alone and
// some side by side;
func live(t *testing.T, count int) *life {
	t.Helper()
	f := &life{leaves: map[uint64][32]byte{}, ids: map[uint64]string{}}
	d, clock := receipts.NewSimDisk(), clockwork.NewFakeClockAt(noon)
	kept := keepMoments(d)
	l, err := receipts.Open(simData, simOptions(d, clock))
	if err != nil {
		t.Fatal(err)
	}
	kept.of(l)
	f.vkey = l.VerifierKey()
	var mu sync.Mutex
	append1 := func(r *receipts.Record) {
		e, err := l.Append(r)
		if err != nil {
			t.Error(err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		f.leaves[e.Index], f.ids[e.Index] = e.Leaf, r.ID+" "+string(r.Kind)
	}
	for n := 0; n < count; {
		together := min(1+n%16, count-n)
		var wait sync.WaitGroup
		for i := range together {
			wait.Go(func() {
				id, tenant := fmt.Sprintf("call-%d", n+i), fmt.Sprintf("tenant:t%d", (n+i)%3)
				begun, ended := intent(id), outcome(id)
				begun.Tenant, ended.Tenant = tenant, tenant
				append1(begun)
				append1(ended)
			})
		}
		wait.Wait()
		n += together
		clock.Advance(300 * time.Millisecond)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	f.moments = kept.all
	return f
}

// moments are those of a disk, from now on.
type moments struct {
	mu  sync.Mutex
	all []moment
	log *receipts.Log // whose promises are noted; nil: it has made none
}

func (k *moments) of(l *receipts.Log) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.log = l
}

func keepMoments(d *receipts.SimDisk) *moments {
	k := new(moments)
	d.Before = func(c receipts.SimCall) receipts.SimFault {
		if !c.Changes() {
			return receipts.SimFault{}
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		m := moment{before: d.Clone(), call: c}
		m.call.Bytes = bytes.Clone(c.Bytes)
		if k.log != nil {
			m.size, m.anchor = k.log.Stats().Size, k.log.Checkpoint()
		}
		k.all = append(k.all, m)
		return receipts.SimFault{}
	}
	return k
}

// restarted opens the log on d as the next process would, and closes it. What was
// acknowledged at m is there, once, at its index, under every signature that
// anybody has seen, and the log goes on.
func (f *life) restarted(t *testing.T, dir, what string, m moment, d *receipts.SimDisk) {
	t.Helper()
	l, err := receipts.Open(simData, simOptions(d, clockwork.NewFakeClockAt(noon.Add(time.Hour))))
	if err != nil {
		t.Errorf("%s: %s: the next start: %v", m, what, err)
		return
	}
	_, err = l.Append(outcome("afterwards"))
	if err := l.Close(); err != nil {
		t.Errorf("%s: %s: close: %v", m, what, err)
	}
	if err != nil {
		t.Errorf("%s: %s: append: %v", m, what, err)
	}
	f.holds(t, dir, what, m, d)
}

// holds looks at what is on d as an outsider does.
func (f *life) holds(t *testing.T, dir, what string, m moment, d *receipts.SimDisk) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := d.Dump(dir); err != nil {
		t.Fatal(err)
	}
	data, vkey := filepath.Join(dir, simData), f.vkey
	if m.size == 0 {
		vkey = keyOf(t, data) // nobody has seen the first one
	}
	r, err := receipts.Verify(data, vkey, m.anchor, nil)
	if err != nil || r.Torn != 0 || m.anchor == nil && r.Verdict != receipts.Unproven || m.anchor != nil && r.Verdict != receipts.Holds {
		t.Errorf("%s: %s: verify: %+v, %v", m, what, r, err)
		return
	}
	seen, open := map[string]bool{}, map[string]bool{}
	next := uint64(0)
	err = receipts.Scan(filepath.Join(data, "receipts"), func(s receipts.Stored) error {
		name := s.Record.ID + " " + string(s.Record.Kind)
		if seen[name] {
			t.Errorf("%s: %s: %s is there twice", m, what, name)
		}
		seen[name] = true
		switch s.Record.Kind {
		case receipts.KindIntent:
			open[s.Record.ID] = true
		case receipts.KindOutcome:
			delete(open, s.Record.ID)
		}
		next = s.Index + 1
		if leaf, ok := f.leaves[s.Index]; ok && s.Index < m.size && (leaf != leafHash(s.Line) || f.ids[s.Index] != name) {
			t.Errorf("%s: %s: entry %d, which was acknowledged, is another: %s", m, what, s.Index, s.Line)
		}
		return nil
	})
	if len(open) > 0 { // a call that was cut off has an outcome: that nobody knows
		t.Errorf("%s: %s: intents without an outcome: %v", m, what, open)
	}
	if err != nil || next < m.size {
		t.Errorf("%s: %s: %d entries of %d that were acknowledged, %v", m, what, next, m.size, err)
	}
}

// everywhere does try for each of 0 to before n, on all processors, until the test fails.
func everywhere(t *testing.T, n int, try func(i int, dir string)) {
	t.Helper()
	var next atomic.Int64
	var wait sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		dir := filepath.Join(t.TempDir(), "disk")
		wait.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && !t.Failed(); i = int(next.Add(1)) - 1 {
				try(i, dir)
			}
		})
	}
	wait.Wait()
}

// ends are all the ways in which a process can end at these moments: before each
// call, and in a write after each byte.
func ends(moments []moment) (all []end) {
	for i, m := range moments {
		for part := range max(1, len(m.call.Bytes)) {
			all = append(all, end{i, part})
		}
	}
	return all
}

type end struct{ moment, part int }

// disk is how the end of m after so many bytes of its write leaves the disk.
func (m moment) disk(part int) *receipts.SimDisk {
	d := m.before.Clone()
	if part > 0 {
		d.WritePart(m.call, part)
	}
	return d
}

// some are so many of all, in another order.
func some[T any](all []T, n int, seed uint64) []T {
	random := rand.New(rand.NewPCG(seed, seed))
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:min(n, len(all))]
}

// TestKilledAtEveryByte: a process that dies leaves its last write cut off at any
// byte, or is between two calls.
func TestKilledAtEveryByte(t *testing.T) {
	f := live(t, rounds(60, 200))
	all := ends(f.moments)
	tried := some(all, rounds(60, 1_000), 1)
	everywhere(t, len(tried), func(i int, dir string) {
		m, part := f.moments[tried[i].moment], tried[i].part
		f.restarted(t, dir, fmt.Sprintf("killed after %d of %d bytes", part, len(m.call.Bytes)), m, m.disk(part))
	})
	t.Logf("killed at %d of %d places in %d calls", len(tried), len(all), len(f.moments))
}

// TestPowerLoss: what was not synced is on disk in any part.
func TestPowerLoss(t *testing.T) {
	f := live(t, rounds(60, 200))
	tried := some(ends(f.moments), rounds(100, 5_000), 2)
	everywhere(t, len(tried), func(i int, dir string) {
		m, part := f.moments[tried[i].moment], tried[i].part
		f.restarted(t, dir, fmt.Sprintf("the power lost after %d of %d bytes, seed %d", part, len(m.call.Bytes), i), m, m.disk(part).Crash(uint64(i)))
	})
}

// repaired is what repairs have made of a log.
type repaired struct {
	records     []string // but those of the repairs themselves
	recoveries  int      // records of them
	quarantined int      // files
}

func (f *life) repaired(t *testing.T, dir string) (r repaired) {
	t.Helper()
	folder := filepath.Join(dir, simData, "receipts")
	err := receipts.Scan(folder, func(s receipts.Stored) error {
		if s.Record.Kind != receipts.KindRecovery {
			id := s.Record.ID
			if s.Record.Kind == receipts.KindKey {
				id = "" // by chance, and where it was torn each start makes another
			}
			r.records = append(r.records, fmt.Sprint(id, " ", s.Record.Kind, " ", s.Record.Ending))
			return nil
		}
		r.recoveries++
		kept := s.Record.Recovery
		b, err := os.ReadFile(filepath.Join(folder, "quarantine", fmt.Sprintf("%s-%d-%.16s", kept.File, kept.Offset, kept.SHA256)))
		if err != nil || int64(len(b)) != kept.Bytes || fmt.Sprintf("%x", sha256.Sum256(b)) != kept.SHA256 {
			t.Errorf("what was cut is not kept as %+v says: %v", kept, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	files, _ := filepath.Glob(filepath.Join(folder, "quarantine", "0*"))
	r.quarantined = len(files)
	return r
}

// TestKilledWhileRepairing: a start that repairs a torn tail ends itself, before
// or within any of its calls, by a kill or a loss of power. The next one repairs
// what is there then. Nothing that was acknowledged is lost, and nothing is cut
// away that no record tells of.
func TestKilledWhileRepairing(t *testing.T) {
	f := live(t, rounds(20, 40))
	var inSegments []end
	for _, e := range ends(f.moments) {
		if e.part > 0 && strings.HasSuffix(f.moments[e.moment].call.Name, ".jsonl") {
			inSegments = append(inSegments, e)
		}
	}
	tried := some(inSegments, rounds(4, 100), 3)
	every := 1009 // bytes of a write
	if drill() {
		every = 31
	}
	var torn atomic.Int64
	everywhere(t, len(tried), func(i int, dir string) {
		m, part := f.moments[tried[i].moment], tried[i].part
		how, first := fmt.Sprintf("%d of %d bytes", part, len(m.call.Bytes)), m.disk(part)
		if i%2 == 0 {
			how, first = fmt.Sprintf("%s, power lost by seed %d", how, i), first.Crash(uint64(i))
		}
		undisturbed := first.Clone()
		calls := keepMoments(undisturbed)
		f.restarted(t, dir, how+"; undisturbed", m, undisturbed)
		want := f.repaired(t, dir)
		if want.recoveries == 0 {
			return
		}
		torn.Add(1)
		for _, e := range ends(calls.all) {
			if t.Failed() {
				return
			}
			again := calls.all[e.moment]
			if bytes.Contains(again.call.Bytes, []byte(`"id":"afterwards"`)) {
				break // it is open
			}
			if e.part%every != 0 {
				continue
			}
			again.size, again.anchor = m.size, m.anchor
			what := fmt.Sprintf("%s of %s; killed again after %d bytes", how, m, e.part)
			f.restarted(t, dir, what, again, again.disk(e.part))
			got := f.repaired(t, dir)
			if e.part == 0 && !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %s: %+v, undisturbed %+v", again, what, got, want)
			}
			// Where it was a checkpoint line that was torn, and the repair came as far
			// as to write it again, it is whole.
			written := string(again.call.Bytes[:e.part])
			healed := strings.HasPrefix(written, `{"checkpoint":`) && !strings.Contains(written, "\n{")
			if got.recoveries == 0 && !healed {
				t.Errorf("%s: %s: a piece was cut, and no record tells of it", again, what)
			}
			f.restarted(t, dir, what+" by a loss of power", again, again.disk(e.part).Crash(uint64(i)))
			f.repaired(t, dir)
		}
	})
	if n := int(torn.Load()); n < len(tried)/4 {
		t.Errorf("only %d of %d starts had a torn tail", n, len(tried))
	}
}

// rounds is how often a drill is repeated.
func rounds(short, full int) int {
	if drill() {
		return full
	}
	return short
}
