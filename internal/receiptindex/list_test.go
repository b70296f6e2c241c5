package receiptindex_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"agentgw/internal/receiptindex"
	"agentgw/internal/receipts"
)

// TestListSaysWhatTheLogSays: of one log the database lists the same receipts as the log's own
// list, whatever is asked for, and of two those of both.
func TestListSaysWhatTheLogSays(t *testing.T) {
	t.Parallel()
	s := newDatabase(t)
	x := s.open()
	ctx := context.Background()
	one := newReplica(t)
	one.calls(30)
	odd := receipts.Record{Kind: receipts.KindRefusal, ID: receipts.NewID(), Tenant: "tenant:t1", Caller: "open:it's\x00\"odd\"\\", Service: "a'b%_", Decision: receipts.Refused, Code: "scope_denied"}
	one.append(odd)
	one.calls(3)
	if err := one.shipper(x).Finish(ctx); err != nil {
		t.Fatal(err)
	}
	folder, err := receipts.Folder(one.dir)
	if err != nil {
		t.Fatal(err)
	}
	all, err := receipts.List(ctx, folder, receipts.Query{Oldest: true})
	if err != nil {
		t.Fatal(err)
	}
	middle := all.Receipts[len(all.Receipts)/2].Record
	queries := []receipts.Query{
		{}, {Tenant: "t1"}, {Tenant: "tenant:t2"}, {Tenant: "t"}, {Key: "key1"}, {Key: odd.Caller}, {Key: "open:it's"}, {Service: "search"}, {Service: odd.Service}, {Service: "a'bxx"},
		{Decision: receipts.Refused}, {Decision: receipts.Allowed}, {Why: "rate_limited"}, {Why: string(receipts.ClientCancelled)}, {Why: receipts.Running}, {Why: "budget"},
		{Request: middle.RequestID}, {From: middle.Time}, {To: middle.Time}, {From: middle.Time, To: middle.Time.Add(1)}, {From: middle.Time.Add(time.Nanosecond)}, {To: middle.Time.Add(time.Nanosecond)},
		{Tenant: "t0", Key: "key0", Decision: receipts.Allowed}, {Tenant: "x' OR 1=1 --"},
	}
	for _, q := range queries {
		for _, oldest := range []bool{false, true} {
			q.Oldest = oldest
			want, err := receipts.List(ctx, folder, q)
			if err != nil {
				t.Fatal(err)
			}
			page, err := x.List(ctx, q, "")
			if err != nil {
				t.Fatalf("%+v: %v", q, err)
			}
			if got, want := found(page.Receipts), lines(want.Receipts); !slices.Equal(got, want) {
				t.Errorf("%+v: %d receipts, want %d:\n%q\n%q", q, len(got), len(want), got, want)
			}
		}
	}

	two := newReplica(t)
	two.calls(20)
	if err := two.shipper(x).Finish(ctx); err != nil {
		t.Fatal(err)
	}
	for _, oldest := range []bool{false, true} {
		whole, err := x.List(ctx, receipts.Query{Oldest: oldest}, "")
		if err != nil {
			t.Fatal(err)
		}
		for i, f := range whole.Receipts[1:] {
			if before := whole.Receipts[i]; oldest && f.Record.Time.Before(before.Record.Time) || !oldest && f.Record.Time.After(before.Record.Time) {
				t.Errorf("oldest first %v: %s stands behind %s", oldest, f.Record.Time, before.Record.Time)
			}
		}
		for _, limit := range []int{1, 7, 100} {
			var got []receiptindex.Found
			cursor := ""
			for range 1000 {
				page, err := x.List(ctx, receipts.Query{Oldest: oldest, Limit: limit}, cursor)
				if err != nil {
					t.Fatal(err)
				}
				if len(page.Receipts) > limit || len(page.Receipts) == 0 {
					t.Fatalf("%d receipts in a page of %d", len(page.Receipts), limit)
				}
				got = append(got, page.Receipts...)
				if cursor = page.Next; cursor == "" {
					break
				}
			}
			if !slices.Equal(found(got), found(whole.Receipts)) {
				t.Errorf("oldest first %v, %d a page: %d receipts, at once %d", oldest, limit, len(got), len(whole.Receipts))
			}
		}
		if n := len(whole.Receipts); n != len(all.Receipts)+20+4 { // a refusal with each fourth call but the last
			t.Errorf("%d receipts of both, of which %d of one", n, len(all.Receipts))
		}
	}
	for _, cursor := range []string{"x", "1", "1.2", "1.2.", "a.2.o", "1.b.o", "1.2.o\x00"} {
		if _, err := x.List(ctx, receipts.Query{}, cursor); !errors.Is(err, receiptindex.ErrCursor) {
			t.Errorf("cursor %q: %v", cursor, err)
		}
	}
}

func lines(list []receipts.Found) (texts []string) {
	for _, f := range list {
		texts = append(texts, fmt.Sprint(f.Index, " ", string(f.Line)))
	}
	return texts
}

func found(list []receiptindex.Found) (texts []string) {
	for _, f := range list {
		texts = append(texts, fmt.Sprint(f.Index, " ", string(f.Line)))
	}
	return texts
}

// TestACallIsListedOnce: by its intent while it runs, by its outcome then, whether both are
// shipped together or one after the other.
func TestACallIsListedOnce(t *testing.T) {
	t.Parallel()
	s := newDatabase(t)
	x := s.open()
	ctx := context.Background()
	r := newReplica(t)
	kinds := func() (list []receipts.Kind) {
		t.Helper()
		if err := r.shipper(x).Finish(ctx); err != nil {
			t.Fatal(err)
		}
		page, err := x.List(ctx, receipts.Query{Oldest: true}, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range page.Receipts {
			list = append(list, f.Record.Kind)
		}
		return list
	}
	intent := receipts.Record{Kind: receipts.KindIntent, ID: "a", Tenant: "tenant:t", Service: "s", Decision: receipts.Allowed}
	outcome := intent
	outcome.Kind, outcome.Ending = receipts.KindOutcome, receipts.Complete
	r.append(intent)
	if got := kinds(); !slices.Equal(got, []receipts.Kind{receipts.KindIntent}) {
		t.Errorf("while it runs: %v", got)
	}
	r.append(outcome)
	if got := kinds(); !slices.Equal(got, []receipts.Kind{receipts.KindOutcome}) {
		t.Errorf("when it has ended: %v", got)
	}
	intent.ID, outcome.ID = "b", "b"
	r.append(intent)
	r.append(outcome)
	if got := kinds(); !slices.Equal(got, []receipts.Kind{receipts.KindOutcome, receipts.KindOutcome}) {
		t.Errorf("shipped together: %v", got)
	}
	intent.ID = "c"
	r.append(intent)
	kinds()
	if err := r.log.Close(); err != nil { // as one that is killed
		t.Fatal(err)
	}
	r.open()
	if got := kinds(); !slices.Equal(got, []receipts.Kind{receipts.KindOutcome, receipts.KindOutcome, receipts.KindOutcome}) {
		t.Errorf("after a restart: %v", got)
	}
}
