package receipts_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"agentgw/internal/receipts"
)

// TestEveryBitOfAnIndexIsNoMatter flips each bit of an index in turn, cuts it at
// each length and gives it another segment's: the lists are the same, since what
// is wrong with an index is found before it is used. A gateway writes it anew.
func TestEveryBitOfAnIndexIsNoMatter(t *testing.T) {
	dir, _ := pickLog(t, 90)
	folder := filepath.Join(dir, "receipts")
	if err := receipts.Index(folder, 64); err != nil {
		t.Fatal(err)
	}
	all := attemptsIn(t, dir)
	file := indexesIn(t, dir)[0]
	whole := read(t, file)
	asked := []receipts.Query{{}, {Tenant: "t-3"}, {Why: "complete", Decision: receipts.Allowed, Oldest: true}, {Why: receipts.Running},
		{From: time.Date(2026, 5, 4, 12, 1, 0, 0, time.UTC), To: time.Date(2026, 5, 4, 12, 2, 0, 0, time.UTC)}}
	compare := func(what string, at int) {
		t.Helper()
		for i, q := range asked {
			if !drill() && i != at%len(asked) {
				continue
			}
			if got, want := pages(t, folder, q), wanted(q, all); !sameList(got, want) {
				t.Fatalf("%s at %d: %+v: %v, want %v", what, at, q, indexesOf(got), indexesOf(want))
			}
		}
	}
	step := 31
	if drill() {
		step = 1
	}
	for bit := 0; bit < 8*len(whole); bit += step {
		changed := bytes.Clone(whole)
		changed[bit/8] ^= 1 << (bit % 8)
		write(t, file, changed)
		compare("a bit", bit)
		if bit%step == 0 && bit%(97*step) == 0 {
			if err := receipts.Index(folder, 64); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(read(t, file), whole) {
				t.Fatalf("bit %d: the index was not written anew", bit)
			}
		}
	}
	for size := 0; size < len(whole); size += 5 * step {
		write(t, file, whole[:size])
		compare("cut", size)
	}
	write(t, file, read(t, indexesIn(t, dir)[1]))
	compare("another's", 0)
}

// TestAnIndexIsOfItsSegmentAlone: where other records of the same length have taken the
// place of those that an index is of, as after a repair or a restored backup, it is not
// believed.
func TestAnIndexIsOfItsSegmentAlone(t *testing.T) {
	dir, _ := pickLog(t, 200)
	folder := filepath.Join(dir, "receipts")
	if err := receipts.Index(folder, 64); err != nil {
		t.Fatal(err)
	}
	for _, name := range segments(t, dir) {
		text := bytes.ReplaceAll(read(t, name), []byte(`"tenant":"tenant:t-3"`), []byte(`"tenant":"tenant:t-8"`))
		write(t, name, bytes.ReplaceAll(text, []byte(`"t":"2026-`), []byte(`"t":"2025-`)))
	}
	q := receipts.Query{Tenant: "t-8"}
	got := pages(t, folder, q)
	removeIndexes(t, dir)
	if want := pages(t, folder, q); len(want) == 0 || !sameList(got, want) {
		t.Errorf("%v, want %v", indexesOf(got), indexesOf(want))
	}
}

// TestIndexesAreRebuiltBitByBit removes all indexes of a log: what is made anew is
// what was there, and what has grown with the log too.
func TestIndexesAreRebuiltBitByBit(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir, receipts.SetNoSync, func(o *receipts.Options) {
		receipts.SetSegmentSize(o, 20<<10)
		receipts.SetIndex(o, 1, 64)
	})
	for n := range 300 {
		mustAppend(t, l, intent("r"+itoa(n)))
		if n%3 > 0 {
			mustAppend(t, l, outcome("r"+itoa(n)))
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(dir, "receipts")
	if err := receipts.Index(folder, 64); err != nil { // what the log had no time for
		t.Fatal(err)
	}
	grown := map[string][]byte{}
	for _, f := range indexesIn(t, dir) {
		grown[f] = read(t, f)
	}
	if len(grown) < 5 {
		t.Fatalf("%d indexes", len(grown))
	}
	removeIndexes(t, dir)
	if err := receipts.Index(folder, 64); err != nil {
		t.Fatal(err)
	}
	for f, b := range grown {
		if !bytes.Equal(read(t, f), b) {
			t.Errorf("%s was not made anew as it was", filepath.Base(f))
		}
	}
}

// TestALogKeepsItsIndex: an open log indexes what it writes without being asked,
// what was written before it had an index, and what was lost of one meanwhile.
func TestALogKeepsItsIndex(t *testing.T) {
	dir, _ := pickLog(t, 300)
	l := openLog(t, dir, receipts.SetNoSync, func(o *receipts.Options) { receipts.SetIndex(o, 1, 64) })
	defer l.Close()
	sealed := segments(t, dir)
	sealed = sealed[:len(sealed)-1]
	n := 0
	indexed := func() bool {
		n++
		mustAppend(t, l, outcome("more"+itoa(n)))
		for _, s := range sealed {
			info, err := os.Stat(s[:len(s)-len(".jsonl")] + ".idx")
			if err != nil || info.Size() == 0 {
				return false
			}
		}
		return true
	}
	eventually(t, "every segment that is full has an index", indexed)
	file := indexesIn(t, dir)[0]
	whole := read(t, file)
	changed := bytes.Clone(whole)
	changed[len(changed)/2] ^= 1
	write(t, file, changed)
	eventually(t, "a bad index is written anew once a list has come upon it", func() bool {
		if _, err := l.List(t.Context(), receipts.Query{Tenant: "t-3"}); err != nil {
			t.Fatal(err)
		}
		n++
		mustAppend(t, l, outcome("more"+itoa(n)))
		return bytes.Equal(read(t, file), whole)
	})
}

// TestListsOfAReadOnlyCopy: a folder that nobody may write, without an index, is
// read; and what is half written at its end is left alone.
func TestListsOfAReadOnlyCopy(t *testing.T) {
	dir, all := pickLog(t, 100)
	names := segments(t, dir)
	f, err := os.OpenFile(names[len(names)-1], os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.Seek(0, io.SeekEnd)
	f.WriteString(`{"batch":{"first":1,"count":1,"bytes":300}}` + "\n" + `{"v":1,"kind":"outcome","id":"half`)
	f.Close()
	folder := filepath.Join(dir, "receipts")
	os.Chmod(folder, 0o500)
	defer os.Chmod(folder, 0o700)
	if got, want := pages(t, folder, receipts.Query{}), wanted(receipts.Query{}, all); !sameList(got, want) {
		t.Errorf("%v, want %v", indexesOf(got), indexesOf(want))
	}
	if len(indexesIn(t, dir)) > 0 {
		t.Error("a list has written an index")
	}
}

// TestListReadsNoMoreThanItMay: what an open log has no index of is bounded.
func TestListReadsNoMoreThanItMay(t *testing.T) {
	dir, _ := pickLog(t, 100)
	folder := filepath.Join(dir, "receipts")
	if _, err := receipts.List(t.Context(), folder, receipts.Query{MaxScan: 10 << 10}); err != receipts.ErrNoIndex {
		t.Errorf("without an index: %v", err)
	}
	if err := receipts.Index(folder, 64); err != nil {
		t.Fatal(err)
	}
	if _, err := receipts.List(t.Context(), folder, receipts.Query{MaxScan: 100 << 10}); err != nil {
		t.Errorf("with an index: %v", err)
	}
}
