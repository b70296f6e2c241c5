package receipts

import (
	"bytes"
	"errors"
	"os"
	"syscall"
	"testing"
)

// TestSimulatedDisk: a test over it is worth what it forgets. What was synced is
// there with every seed; what was not is there with some, in part with some, and
// with some not at all; and one seed always gives the same.
func TestSimulatedDisk(t *testing.T) {
	d := NewSimDisk()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	open := func(path string) file {
		t.Helper()
		f, err := d.open(path, os.O_CREATE|os.O_RDWR, 0o600)
		must(err)
		return f
	}
	must(makeFolder(d, "/data/log"))
	f, moved := open("/data/log/f"), open("/data/log/new")
	old, new := bytes.Repeat([]byte("o"), 2*sector), bytes.Repeat([]byte("n"), 4*sector)
	must(writeAll(f, old, 0))
	must(f.sync())
	must(d.syncDir("/data/log"))
	must(writeAll(f, new, 0))
	must(writeAll(moved, []byte("whole"), 0))
	must(moved.sync())
	must(d.rename("/data/log/new", "/data/log/name"))
	_ = open("/data/log/empty")
	seen := map[string]int{}
	for seed := range uint64(1000) {
		after := d.Crash(seed)
		got := after.Read("/data/log/f")
		if again := d.Crash(seed); !bytes.Equal(got, again.Read("/data/log/f")) || (after.Read("/data/log/name") == nil) != (again.Read("/data/log/name") == nil) {
			t.Fatal("one seed, two ends")
		}
		if len(got) < len(old) {
			t.Fatalf("%d bytes of %d that were synced", len(got), len(old))
		}
		for i := range 2 {
			switch s := got[i*sector:][:sector]; {
			case bytes.Equal(s, old[:sector]):
			case bytes.Equal(s, new[:sector]):
				seen["sector "+string(rune('0'+i))]++
			default:
				t.Fatalf("a torn sector: %q", s)
			}
		}
		switch {
		case bytes.Equal(got, new):
			seen["all"]++
		case bytes.Equal(got, old):
			seen["nothing"]++
		case len(got) > len(old) && bytes.Count(got[len(old):], []byte{0}) > 0:
			seen["longer, with zeros"]++
		}
		from, to := after.Read("/data/log/new"), after.Read("/data/log/name")
		if string(from)+string(to) != "whole" {
			t.Fatalf("a rename that is neither done nor not: %q, %q", from, to)
		}
		if to != nil {
			seen["renamed"]++
		}
		if after.Read("/data/log/empty") != nil {
			seen["created"]++
		}
	}
	for _, what := range []string{"sector 0", "sector 1", "all", "nothing", "longer, with zeros", "renamed", "created"} {
		if seen[what] < 20 || seen[what] > 980 {
			t.Errorf("%s: %d of 1,000", what, seen[what])
		}
	}
	if got := d.Kill().Read("/data/log/f"); !bytes.Equal(got, new) {
		t.Error("a process that dies takes along what it has written")
	}
}

// TestSimulatedFaults: what each kind of fault leaves.
func TestSimulatedFaults(t *testing.T) {
	d := NewSimDisk()
	var fault SimFault
	d.Before = func(SimCall) SimFault { return fault }
	f, err := d.open("/f", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		fault SimFault
		call  func() error
		err   error
		want  string
	}{
		{SimFault{Err: syscall.EIO}, func() error { return writeAll(f, []byte("abc"), 0) }, syscall.EIO, ""},
		{SimFault{Err: syscall.EIO, Part: 2}, func() error { return writeAll(f, []byte("abc"), 0) }, syscall.EIO, "ab"},
		{SimFault{Err: syscall.EIO, Did: true}, func() error { return writeAll(f, []byte("xyz"), 0) }, syscall.EIO, "xyz"},
		{SimFault{Part: 1}, func() error { return writeAll(f, []byte("12345"), 0) }, nil, "12345"},
		{SimFault{Part: 1, Err: syscall.EINTR}, func() error { return writeAll(f, []byte("67890"), 0) }, nil, "67890"},
		{SimFault{Err: syscall.EIO}, func() error { return f.Truncate(0) }, syscall.EIO, "67890"},
		{SimFault{Err: syscall.EIO, Did: true}, func() error { return f.Truncate(1) }, syscall.EIO, "6"},
		{SimFault{Err: syscall.EIO}, f.sync, syscall.EIO, "6"},
	} {
		fault = c.fault
		if err := c.call(); !errors.Is(err, c.err) {
			t.Errorf("%+v: %v", c.fault, err)
		}
		if got := string(d.Read("/f")); got != c.want {
			t.Errorf("%+v: %q, want %q", c.fault, got, c.want)
		}
	}
	// A sync that follows one that has failed says that all is well, and nothing is.
	fault = SimFault{}
	if err := f.sync(); err != nil {
		t.Fatal(err)
	}
	if err := d.syncDir("/"); err != nil {
		t.Fatal(err)
	}
	lost := 0
	for seed := range uint64(100) {
		if string(d.Crash(seed).Read("/f")) != "6" {
			lost++
		}
	}
	if lost == 0 {
		t.Error("a sync that has failed is made good by the next")
	}
	d = d.Crash(0)
	d.SetFree(8192)
	if f, err = d.open("/g", os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeAll(f, make([]byte, 10_000), 0); !errors.Is(err, syscall.ENOSPC) || len(d.Read("/g")) != 8192 || d.Free() != 0 {
		t.Errorf("a full disk: %v; %d bytes written, %d free", err, len(d.Read("/g")), d.Free())
	}
}
