package receipts_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math/bits"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/receipts"
)

// treeHash is RFC 6962, section 2.1, as it stands there.
func treeHash(leaves [][32]byte) [32]byte {
	switch n := len(leaves); n {
	case 0:
		return sha256.Sum256(nil)
	case 1:
		return leaves[0]
	default:
		k := 1 << (bits.Len(uint(n-1)) - 1) // the largest power of two below n
		left, right := treeHash(leaves[:k]), treeHash(leaves[k:])
		return sha256.Sum256(slices.Concat([]byte{1}, left[:], right[:]))
	}
}

func leafHash(line []byte) [32]byte { return sha256.Sum256(append([]byte{0}, line...)) }

// trees are the tenants' trees of a log, by FORMAT.md alone.
type trees struct {
	log    string
	leaves map[string][][32]byte
}

func (tr *trees) take(s receipts.Stored) {
	if s.Record.Tenant != "" {
		tr.leaves[s.Record.Tenant] = append(tr.leaves[s.Record.Tenant], leafHash(s.Line))
	}
}

func (tr *trees) origin(tenant string) string {
	first := tr.leaves[tenant][0]
	sum := sha256.Sum256(fmt.Appendf(nil, "agentgate tenant tree v1\n%s\n%s", tr.log, first[:]))
	return tr.log + "/t/" + hex.EncodeToString(sum[:16])
}

// head is the text of a tenant's checkpoint.
func (tr *trees) head(tenant string) string {
	leaves := tr.leaves[tenant]
	root := treeHash(leaves)
	return fmt.Sprintf("%s\n%d\n%s\n", tr.origin(tenant), len(leaves), base64.StdEncoding.EncodeToString(root[:]))
}

// headsOf is what a heads record of these tenants says.
func (tr *trees) headsOf(tenants ...string) receipts.Heads {
	var heads [][32]byte
	for _, tenant := range tenants {
		heads = append(heads, leafHash([]byte(tr.head(tenant))))
	}
	root := treeHash(heads)
	return receipts.Heads{Count: uint64(len(heads)), Root: base64.StdEncoding.EncodeToString(root[:])}
}

func originOf(vkey string) string {
	name, _, _ := strings.Cut(vkey, "+")
	return name
}

func of(tenant, id string) *receipts.Record {
	r := outcome(id)
	r.Tenant = tenant
	return r
}

// headsIn returns the heads records, what the trees before each say of the
// tenants that waiting names, and checks that they are the same.
func headsIn(t *testing.T, dir, vkey string, waiting ...[]string) (indexes []uint64) {
	t.Helper()
	tr := &trees{originOf(vkey), map[string][][32]byte{}}
	err := receipts.Scan(filepath.Join(dir, "receipts"), func(s receipts.Stored) error {
		if s.Record.Kind == receipts.KindHeads {
			if len(indexes) >= len(waiting) {
				t.Fatalf("entry %d is one heads record too many", s.Index)
			}
			if want := tr.headsOf(waiting[len(indexes)]...); *s.Record.Heads != want || s.Record.Tenant != "" {
				t.Errorf("entry %d: %+v, want %+v", s.Index, *s.Record.Heads, want)
			}
			indexes = append(indexes, s.Index)
		}
		tr.take(s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(indexes) != len(waiting) {
		t.Errorf("%d heads records, want %d", len(indexes), len(waiting))
	}
	return indexes
}

func size(l *receipts.Log) uint64 { return l.Stats().Size }

// until waits for the log to hold n entries; its clock goes on by step in between.
func until(t testing.TB, l *receipts.Log, clock advancing, n uint64, step time.Duration) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d entries", n), func() bool {
		clock.Advance(step)
		return size(l) >= n
	})
}

// nudged lets time pass at once, on a clock outside of a bubble, and waits for the log
// to have noticed and to hold n entries.
func nudged(t testing.TB, l *receipts.Log, clock *clockwork.FakeClock, passes time.Duration, n uint64) {
	t.Helper()
	clock.Advance(passes)
	eventually(t, fmt.Sprintf("%d entries", n), func() bool {
		receipts.Nudge(l)
		return size(l) >= n
	})
}

// TestHeads: five seconds after a tenant's tree has grown a record tells of it,
// in either mode of syncing, on a silent log and on a busy one, and none does
// where nothing has grown.
func TestHeads(t *testing.T) {
	for _, sync := range []string{receipts.SyncAlways, receipts.SyncInterval} {
		t.Run(sync, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				dir, clock := t.TempDir(), newBubbleClock()
				l := openLog(t, dir, func(o *receipts.Options) { o.Clock, o.Sync = clock, sync })
				stranger := &receipts.Record{Kind: receipts.KindRefusal, ID: "s", Decision: receipts.Refused, Code: "unauthenticated"}
				mustAppend(t, l, of("tenant:b", "b1"), of("tenant:a", "a1"), stranger, of("tenant:b", "b2"))
				until(t, l, clock, 5, 50*time.Millisecond)
				if got := size(l); got != 5 {
					t.Fatalf("%d entries before anything is due", got)
				}
				until(t, l, clock, 6, 100*time.Millisecond) // nobody writes: it comes by itself
				again := &receipts.Record{Kind: receipts.KindRefusal, ID: "s2", Decision: receipts.Refused, Code: "unauthenticated"}
				mustAppend(t, l, again) // grows no tenant's tree
				until(t, l, clock, 7, 50*time.Millisecond)
				for range 200 {
					clock.Advance(100 * time.Millisecond)
				}
				mustAppend(t, l, of("tenant:a", "a2"), of("tenant:c", "c1"))
				until(t, l, clock, 9, 50*time.Millisecond)
				until(t, l, clock, 10, 100*time.Millisecond)
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				if at := headsIn(t, dir, l.VerifierKey(), []string{"tenant:b", "tenant:a"}, []string{"tenant:a", "tenant:c"}); len(at) == 2 && (at[0] != 5 || at[1] != 9) {
					t.Errorf("at %v", at)
				}
				if r := verdict(t, dir, l.VerifierKey(), l.Checkpoint()); r.Damage != nil || r.Size != 10 || r.Kinds["heads"] != 2 {
					t.Errorf("%s %s", r.Verdict, r.Why)
				}
			})
		})
	}
}

// TestHeadsOfABusyLog: a log that is never silent has its heads too, and no more
// than one record of them in five seconds.
func TestHeadsOfABusyLog(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir, clock := t.TempDir(), newBubbleClock()
		l := openLog(t, dir, func(o *receipts.Options) { o.Clock = clock; receipts.SetNoSync(o) })
		var wg sync.WaitGroup
		for w := range 8 {
			wg.Go(func() {
				for i := range 200 {
					if _, err := l.Append(of(fmt.Sprintf("key:%d", w), fmt.Sprintf("%d-%d", w, i))); err != nil {
						t.Error(err)
					}
					time.Sleep(80 * time.Millisecond) // 16 s in all
				}
			})
		}
		wg.Wait()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		r := verdict(t, dir, l.VerifierKey(), l.Checkpoint())
		if r.Verdict != receipts.Holds || r.Kinds["heads"] < 2 || r.Kinds["heads"] > 3 {
			t.Errorf("%s: %d heads records in 16 s", r.Why, r.Kinds["heads"])
		}
	})
}

// TestHeadsOfManyTenants: one record tells of 1,024 trees at most, and the next
// follows at once.
func TestHeadsOfManyTenants(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const many = 1500
		dir, clock := t.TempDir(), newBubbleClock()
		l := openLog(t, dir, func(o *receipts.Options) { o.Clock = clock; receipts.SetNoSync(o) })
		var tenants []string
		for i := range many {
			tenants = append(tenants, fmt.Sprintf("human:u-%d", many-i))
			mustAppend(t, l, of(tenants[i], fmt.Sprint(i)))
		}
		clock.Advance(5 * time.Second)
		if n := size(l); n != many+3 {
			t.Errorf("%d entries, want both records as well", n)
		}
		l.Close()
		headsIn(t, dir, l.VerifierKey(), tenants[:1024], tenants[1024:])
		if r := verdict(t, dir, l.VerifierKey(), l.Checkpoint()); r.Verdict != receipts.Holds || r.Tenants != many {
			t.Error(r.Why)
		}
	})
}

// TestHeadsAfterAStart: what grew before a restart waits no longer than five
// seconds after it, also in a log that was begun before there were heads.
func TestHeadsAfterAStart(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		old := copyLog(t, golden)
		cut := t.TempDir()
		l := openLog(t, cut)
		mustAppend(t, l, of("tenant:acme", "a"), of("key:other", "b"), of("tenant:acme", "c"))
		l.Close()
		for name, dir := range map[string]string{"an old log": old, "a log": cut} {
			clock := newBubbleClock()
			clock.Advance(time.Hour)
			l := openLog(t, dir, func(o *receipts.Options) { o.Clock = clock })
			before := size(l)
			clock.Advance(5*time.Second - 1)
			mustAppend(t, l, of("key:new", "n"))
			clock.Advance(1)
			if got := size(l); got != before+2 {
				t.Errorf("%s: %d entries five seconds after the start, want %d", name, got, before+2)
			}
			l.Close()
			headsIn(t, dir, l.VerifierKey(), []string{"tenant:acme", "key:other", "key:new"})
			if r := verdict(t, dir, l.VerifierKey(), l.Checkpoint()); r.Damage != nil || r.Covered != before+2 {
				t.Errorf("%s: %s", name, r.Why)
			}
			// And what has been told is not told again.
			l = openLog(t, dir, func(o *receipts.Options) { o.Clock = clock })
			clock.Advance(time.Minute / 2)
			mustAppend(t, l, &receipts.Record{Kind: receipts.KindRefusal, ID: "s", Decision: receipts.Refused})
			if got := size(l); got != before+3 {
				t.Errorf("%s: %d entries, want %d", name, got, before+3)
			}
			l.Close()
		}
	})
}

// boundLog is a log with heads in it: entries 1 to 3 are of two tenants, entry 4
// tells of them, entry 5 is of one of them, entry 6 tells of that.
func boundLog(t testing.TB) (dir, vkey string, anchor []byte) {
	t.Helper()
	dir, clock := t.TempDir(), clockwork.NewFakeClockAt(noon)
	l := openLog(t, dir, func(o *receipts.Options) { o.Clock = clock })
	mustAppend(t, l, of("tenant:acme", "a1"), of("key:k", "k1"), of("tenant:acme", "a2"))
	nudged(t, l, clock, 5*time.Second, 5)
	mustAppend(t, l, of("tenant:acme", "a3"))
	nudged(t, l, clock, 5*time.Second, 7)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, l.VerifierKey(), l.Checkpoint()
}

// TestForkedHeads: whoever holds the signing key can write what he likes, once.
// Heads that are not those of the records before them contradict these, for a
// verifier and for the gateway's own next start, and the heads record is named.
func TestForkedHeads(t *testing.T) {
	original, vkey, _ := boundLog(t)
	headsAt := func(index uint64, from, to string) func(uint64, []byte) []byte {
		return func(i uint64, body []byte) []byte {
			if i != index {
				return body
			}
			if !bytes.Contains(body, []byte(from)) {
				t.Fatalf("no %s in %s", from, body)
			}
			return bytes.Replace(body, []byte(from), []byte(to), 1)
		}
	}
	zero := base64.StdEncoding.EncodeToString(make([]byte, 32))
	for name, c := range map[string]struct {
		change func(uint64, []byte) []byte
		entry  uint64
	}{
		"another root":          {headsAt(4, `"root":"`, `"root":"`+zero), 4},
		"a later root":          {headsAt(6, `"root":"`, `"root":"`+zero), 6},
		"one tree less":         {headsAt(4, `"count":2`, `"count":1`), 4},
		"one tree more":         {headsAt(4, `"count":2`, `"count":3`), 4},
		"none":                  {headsAt(4, `"count":2`, `"count":0`), 4},
		"a record was replaced": {headsAt(1, `"status":200`, `"status":201`), 4},
		"a record of another":   {headsAt(5, `"seq":3,"tenant":"tenant:acme"`, `"seq":2,"tenant":"key:k"`), 6},
		"a tenant's records exchanged": {func(i uint64, body []byte) []byte {
			switch i {
			case 1:
				return bytes.Replace(body, []byte(`"a1"`), []byte(`"a2"`), 1)
			case 3:
				return bytes.Replace(body, []byte(`"a2"`), []byte(`"a1"`), 1)
			}
			return body
		}, 4},
	} {
		dir := copyLog(t, original)
		if err := receipts.Rewrite(dir, c.change); err != nil {
			t.Fatal(err)
		}
		anchor := anchorOf(t, dir) // by the good key, over all of it
		r := verdict(t, dir, vkey, anchor)
		if r.Verdict != receipts.Broken || r.Damage == nil || r.Damage.Index != c.entry || !strings.Contains(r.Why, "heads of") && !strings.Contains(r.Why, "its heads") {
			t.Errorf("%s: %s (%s)", name, r.Verdict, r.Why)
		}
		before := tree(t, dir)
		if l, err := receipts.Open(dir, receipts.Options{Clock: clockwork.NewFakeClock()}); err == nil {
			l.Close()
			t.Errorf("%s: a start takes it", name)
		} else if !strings.Contains(err.Error(), fmt.Sprintf("entry %d", c.entry)) {
			t.Errorf("%s: %v", name, err)
		}
		if after := tree(t, dir); fmt.Sprint(before) != fmt.Sprint(after) {
			t.Errorf("%s: a start that is refused has changed something", name)
		}
	}
	same := copyLog(t, original)
	if err := receipts.Rewrite(same, func(_ uint64, body []byte) []byte { return body }); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(tree(t, same)) != fmt.Sprint(tree(t, original)) {
		t.Error("to write the same again makes another log: the cases above may fail for that")
	}
}

// TestEveryBitOfHeadsCounts, also for whoever can sign what he has changed.
func TestEveryBitOfHeadsCounts(t *testing.T) {
	original, vkey, _ := boundLog(t)
	dir := copyLog(t, original)
	var heads []byte
	restore := tree(t, filepath.Join(original, "receipts"))
	at, step := 0, 5
	if drill() {
		step = 1
	}
	for bit := 0; heads == nil || bit < len(heads)*8; bit += step {
		err := receipts.Rewrite(dir, func(i uint64, body []byte) []byte {
			if i != 4 {
				return body
			}
			at = bytes.Index(body, []byte(`,"heads":`))
			heads = body[at:]
			body[at+bit/8] ^= 1 << (bit % 8)
			return body
		})
		if err != nil {
			t.Fatal(err)
		}
		if r := verdict(t, dir, vkey, anchorOf(t, dir)); r.Verdict != receipts.Broken || r.Damage == nil || r.Damage.Index != 4 {
			t.Errorf("bit %d of byte %d (%q): %s (%s)", bit%8, bit/8, heads[bit/8], r.Verdict, r.Why)
		}
		for name, lines := range restore {
			write(t, filepath.Join(dir, "receipts", name), []byte(strings.Join(lines, "")))
		}
	}
}

// TestForkedHeadsUnderNoSignature: a heads record that the gateway wrote, and
// that its trees deny, is no torn write that a start may cut away.
func TestForkedHeadsUnderNoSignature(t *testing.T) {
	dir, _, _ := boundLog(t)
	err := receipts.Rewrite(dir, func(i uint64, body []byte) []byte {
		if i == 6 {
			return bytes.Replace(body, []byte(`"count":1`), []byte(`"count":2`), 1)
		}
		return body
	})
	if err != nil {
		t.Fatal(err)
	}
	text := read(t, segmentFile(dir))
	text = text[:bytes.LastIndex(text, []byte(`{"checkpoint":`))]
	write(t, segmentFile(dir), text)
	write(t, filepath.Join(dir, "receipts", "checkpoint"), nil)
	if l, err := reopen(dir); err == nil {
		l.Close()
		t.Error("taken")
	}
	if !bytes.Equal(read(t, segmentFile(dir)), text) {
		t.Error("something was cut")
	}
}

// TestHeadsAreTheLogsOwn: nobody appends them.
func TestHeadsAreTheLogsOwn(t *testing.T) {
	l := openLog(t, t.TempDir())
	if _, err := l.Append(&receipts.Record{Kind: receipts.KindHeads}); err == nil {
		t.Error("appended")
	}
}

// TestEntryNamesTheTenantsPlace: what Append returns is what FORMAT.md says of
// the tenant's tree, from the first record on, in either mode, after a restart.
func TestEntryNamesTheTenantsPlace(t *testing.T) {
	for _, sync := range []string{receipts.SyncAlways, receipts.SyncInterval} {
		dir := t.TempDir()
		said := map[string]receipts.Entry{}
		for _, ids := range [][]string{{"a", "b", "c"}, {"d", "e"}} {
			l := openLog(t, dir, func(o *receipts.Options) { o.Sync = sync })
			for i, id := range ids {
				said[id] = mustAppend(t, l, of(fmt.Sprintf("tenant:%d", i%2), id))
			}
			if e := mustAppend(t, l, &receipts.Record{Kind: receipts.KindRefusal, Decision: receipts.Refused}); e.Tree != "" || e.TreeIndex != 0 {
				t.Errorf("%s: a stranger's record stands in %q at %d", sync, e.Tree, e.TreeIndex)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
		tr := &trees{originOf(keyOf(t, dir)), map[string][][32]byte{}}
		err := receipts.Scan(filepath.Join(dir, "receipts"), func(s receipts.Stored) error {
			tr.take(s)
			if s.Record.Tenant == "" {
				return nil
			}
			want := receipts.Entry{Index: s.Index, Leaf: leafHash(s.Line), Tree: tr.origin(s.Record.Tenant), TreeIndex: s.Record.Seq - 1}
			if said[s.Record.ID] != want {
				t.Errorf("%s: %s: %+v, want %+v", sync, s.Record.ID, said[s.Record.ID], want)
			}
			return nil
		})
		if err != nil || len(said) != 5 {
			t.Fatal(err, said)
		}
	}
}
