package receipts_test

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/jonboulle/clockwork"
	"golang.org/x/mod/sumdb/note"

	"agentgw/internal/receipts"
)

// faulty is a simulated disk of which one call fails, once.
type faulty struct {
	disk  *receipts.SimDisk
	armed atomic.Pointer[func(receipts.SimCall) (receipts.SimFault, bool)]
}

func newFaulty(d *receipts.SimDisk) *faulty {
	f := &faulty{disk: d}
	d.Before = func(c receipts.SimCall) receipts.SimFault {
		if of := f.armed.Load(); of != nil {
			if fault, ok := (*of)(c); ok {
				f.armed.CompareAndSwap(of, nil)
				return fault
			}
		}
		return receipts.SimFault{}
	}
	return f
}

// next has the next call that is of that op, and of a file whose name ends so, fail.
func (f *faulty) next(op, suffix string, fault receipts.SimFault) {
	of := func(c receipts.SimCall) (receipts.SimFault, bool) {
		return fault, c.Op == op && strings.HasSuffix(c.Name, suffix)
	}
	f.armed.Store(&of)
}

// acknowledged are receipts that were appended, with where they stand.
type acknowledged map[uint64][32]byte

func (a acknowledged) append(l *receipts.Log, r *receipts.Record) error {
	e, err := l.Append(r)
	if err == nil {
		a[e.Index] = e.Leaf
	}
	return err
}

// in says which of them are not in the log on d.
func (a acknowledged) in(t *testing.T, d *receipts.SimDisk, vkey string, anchor []byte) (missing []uint64) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "disk")
	if err := d.Dump(dir); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(dir, simData)
	if r, err := receipts.Verify(data, vkey, anchor, nil); err != nil || r.Verdict != receipts.Holds {
		t.Errorf("verify: %+v, %v", r, err)
	}
	found := map[uint64][32]byte{}
	_ = receipts.Scan(filepath.Join(data, "receipts"), func(s receipts.Stored) error {
		found[s.Index] = leafHash(s.Line)
		return nil
	})
	for index, leaf := range a {
		if found[index] != leaf {
			missing = append(missing, index)
		}
	}
	return missing
}

func openSim(t *testing.T, d *receipts.SimDisk) *receipts.Log {
	t.Helper()
	l, err := receipts.Open(simData, simOptions(d, clockwork.NewFakeClockAt(noon)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// TestFailedSyncIsBelievedByNoStart: a sync fails once, whether or not the bytes
// reached the disk. The request that waited fails, and so does all until a restart.
// The process that starts then finds the bytes in the system's memory, and a sync of
// its own succeeds: but what has failed to be written once is not written by it.
// What it acknowledges stands behind those bytes, and lasts all the same; also where
// it has to sign them before it goes on, behind a torn write or for another key.
func TestFailedSyncIsBelievedByNoStart(t *testing.T) {
	for _, did := range []bool{false, true} {
		for seed := range uint64(3 * rounds(20, 500)) {
			behind := []string{"nothing", "a torn write", "another key"}[seed%3]
			t.Run(fmt.Sprintf("reached the disk %t, behind it %s, seed %d", did, behind, seed), func(t *testing.T) {
				f, acks := newFaulty(receipts.NewSimDisk()), acknowledged{}
				l := openSim(t, f.disk)
				for i := range seed % 5 {
					if err := acks.append(l, outcome(fmt.Sprint("before-", i))); err != nil {
						t.Fatal(err)
					}
				}
				f.next("sync", ".jsonl", receipts.SimFault{Err: syscall.EIO, Did: did})
				if err := acks.append(l, outcome("failed")); !errors.Is(err, receipts.ErrUnavailable) || !errors.Is(err, syscall.EIO) {
					t.Fatalf("the one that waited: %v", err)
				}
				if err := acks.append(l, outcome("later")); !errors.Is(err, receipts.ErrUnavailable) {
					t.Fatalf("the next one, though the disk works again: %v", err)
				}
				d := f.disk.Kill()
				switch path := segmentFile(simData); behind {
				case "a torn write":
					torn := []byte(`{"batch":{"first":`)
					d.WritePart(receipts.SimCall{Path: path, Bytes: torn, At: int64(len(d.Read(path)))}, len(torn))
				case "another key":
					skey, _, err := note.GenerateKey(nil, l.Origin())
					if err != nil {
						t.Fatal(err)
					}
					d.Put(simData+"/receipt-signing-key.next", []byte(skey+"\n"))
				}
				l = openSim(t, d)
				for i := range 3 {
					if err := acks.append(l, outcome(fmt.Sprint("after-", i))); err != nil {
						t.Fatal(err)
					}
				}
				anchor, vkey := l.Checkpoint(), l.VerifierKey()
				d = d.Crash(seed)
				l = openSim(t, d)
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				if missing := acks.in(t, d, vkey, anchor); len(missing) > 0 {
					t.Errorf("acknowledged, and lost: %v", missing)
				}
			})
		}
	}
}

// TestEachCallFails: of a run with a first start, several segments, a torn tail and
// a restart each call fails once, in both ways. That is an error or is made good;
// it is never a panic, and never a receipt that was acknowledged and is not there.
func TestEachCallFails(t *testing.T) {
	faults := []receipts.SimFault{{Err: syscall.EIO}, {Err: syscall.EIO, Did: true}, {Err: syscall.ENOSPC}, {Err: syscall.EMFILE}}
	for n := 0; ; n++ {
		if !drill() && n%7 != 0 {
			continue
		}
		reached := false
		for i, fault := range faults {
			var call string
			var calls atomic.Int64
			one := func(receipts.SimCall) (receipts.SimFault, bool) { return fault, true }
			d := receipts.NewSimDisk()
			d.Before = func(c receipts.SimCall) receipts.SimFault {
				if calls.Add(1) == int64(n)+1 {
					call = c.String()
					f, _ := one(c)
					return f
				}
				return receipts.SimFault{}
			}
			acks, vkey, anchor := acknowledged{}, "", []byte(nil)
			run := func(d *receipts.SimDisk) {
				o := simOptions(d, clockwork.NewFakeClockAt(noon))
				receipts.SetSegmentSize(&o, 2<<10)
				l, err := receipts.Open(simData, o)
				if err != nil {
					return
				}
				for i := range 6 {
					_ = acks.append(l, outcome(fmt.Sprintf("%d-%d", len(acks), i)))
				}
				vkey, anchor = l.VerifierKey(), l.Checkpoint()
				_ = l.Close()
			}
			run(d)
			if reached = calls.Load() > int64(n); !reached {
				break
			}
			// The machine is started again, and the disk is whole.
			d = d.Crash(uint64(n * i))
			l, err := receipts.Open(simData, simOptions(d, clockwork.NewFakeClockAt(noon)))
			if err != nil {
				t.Fatalf("call %d (%s): %v: the next start: %v", n, call, fault.Err, err)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if vkey == "" {
				continue
			}
			if missing := acks.in(t, d, vkey, anchor); len(missing) > 0 {
				t.Errorf("call %d (%s): %v, did %t: acknowledged, and lost: %v", n, call, fault.Err, fault.Did, missing)
			}
		}
		if !reached {
			if n < 50 {
				t.Errorf("only %d calls", n)
			}
			return
		}
	}
}

// TestShortAndInterruptedWrites: a write that takes a part of the bytes, or that a
// signal interrupts, goes on; so does a sync. No receipt is torn.
func TestShortAndInterruptedWrites(t *testing.T) {
	for what, fault := range map[string]receipts.SimFault{
		"a short count":            {Part: 1},
		"a signal":                 {Err: syscall.EINTR},
		"a signal after some byte": {Err: syscall.EINTR, Part: 17},
	} {
		t.Run(what, func(t *testing.T) {
			d, acks := receipts.NewSimDisk(), acknowledged{}
			var mu sync.Mutex
			times := map[string]int{}
			d.Before = func(c receipts.SimCall) receipts.SimFault {
				mu.Lock()
				defer mu.Unlock()
				times[c.Op]++
				if c.Op == "write" && times[c.Op]%2 == 0 || c.Op == "sync" && errors.Is(fault.Err, syscall.EINTR) && times[c.Op]%3 == 0 {
					return fault
				}
				return receipts.SimFault{}
			}
			l := openSim(t, d)
			for i := range 20 {
				if err := acks.append(l, outcome(fmt.Sprint(i))); err != nil {
					t.Fatal(err)
				}
			}
			vkey, anchor := l.VerifierKey(), l.Checkpoint()
			after := d.Crash(0)
			if err := openSim(t, after).Close(); err != nil {
				t.Error(err)
			}
			if missing := acks.in(t, after, vkey, anchor); len(missing) > 0 {
				t.Errorf("acknowledged, and not on disk: %v", missing)
			}
		})
	}
}

// TestSyncThatHangs: nobody is told of a record before its sync has returned,
// however long that takes; then it is there.
func TestSyncThatHangs(t *testing.T) {
	f := newFaulty(receipts.NewSimDisk())
	l := openSim(t, f.disk)
	hold := make(chan struct{})
	f.next("sync", ".jsonl", receipts.SimFault{Hold: hold})
	told := make(chan error, 1)
	go func() { _, err := l.Append(outcome("a")); told <- err }()
	eventually(t, "the sync hangs", func() bool { return f.armed.Load() == nil })
	if l.Stats().Size != 1 || len(told) != 0 || bytes.Contains(f.disk.Crash(0).Read(simData+"/receipts/"+firstSegment), []byte(`"id":"a"`)) {
		t.Error("acknowledged before it was on disk")
	}
	close(hold)
	// Crash has ended the process: that is an error by now, and no acknowledgement.
	if err := <-told; !errors.Is(err, receipts.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}
