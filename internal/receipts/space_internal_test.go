package receipts

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestNoRecordTakesMoreThanWasKept: whatever texts a caller sends, an intent and the
// outcome of its attempt fit into what is kept for them, as long as the outcome adds
// what an outcome adds.
func TestNoRecordTakesMoreThanWasKept(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringN(0, 3000, -1), rapid.StringOf(rapid.RuneFrom([]rune{0, '"', 0x85, 0x202e, 0xfeff, '日'})))
		many := rapid.Int64Range(0, 1<<62)
		r := &Record{Kind: KindIntent, ID: NewID(), Time: time.Unix(1<<31, 0), Seq: 1<<53 - 1, Tenant: text.Draw(t, "tenant"), Caller: text.Draw(t, "caller"),
			Key: text.Draw(t, "key"), Principal: text.Draw(t, "principal"), Chain: rapid.SliceOfN(text, 0, 12).Draw(t, "chain"),
			Service: text.Draw(t, "service"), Action: text.Draw(t, "action"), Method: text.Draw(t, "method"), Decision: Allowed,
			Params: &ParamsHash{Alg: text.Draw(t, "alg"), Hash: text.Draw(t, "hash")}, RequestID: text.Draw(t, "request"), ClientAddr: text.Draw(t, "addr"),
			Replica: text.Draw(t, "replica"), Interval: true, In: many.Draw(t, "in")}
		takes := func(r *Record) int64 { return int64(len(appendRecord(nil, r)) + tagLine + 1) }
		if got := takes(r) + frame; got > costOf(r) {
			t.Fatalf("the intent takes %d, and %d are kept", got, costOf(r))
		}
		owed := owedTo(r)
		r.Kind, r.Ending, r.Code, r.Limit = KindOutcome, UpstreamAborted, "credential_refresh_failed", "a-rule-of-sixty-four-characters-which-is-as-long-as-they-may-be.."
		r.Messages = many.Draw(t, "messages")
		r.Status, r.Out, r.QueueMicros, r.UpstreamMicros, r.TotalMicros = 1<<53, many.Draw(t, "out"), many.Draw(t, "queue"), many.Draw(t, "up"), many.Draw(t, "all")
		if got := takes(r) + frame; got > owed {
			t.Fatalf("the outcome takes %d, and %d are kept", got, owed)
		}
	})
}

// TestTheFrameIsKeptToo: a batch of one, with the largest numbers, its checkpoint
// line, and a segment's header.
func TestTheFrameIsKeptToo(t *testing.T) {
	key, err := createSigning(realDisk{}, t.TempDir(), newSigningKeyFile, originPrefix+strings.Repeat("0", 32))
	if err != nil {
		t.Fatal(err)
	}
	signed, err := checkpoint{key.origin, 1<<53 - 1, (&frontier{}).root()}.sign(key.signer)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(appendBatchLine(nil, batchLine{1<<53 - 1, 1<<53 - 1, 1<<53 - 1})) + len(appendCheckpointLine(nil, signed)); n > frame {
		t.Errorf("a batch takes %d beside its records, %d are kept", n, frame)
	}
	if n := len(appendHeader(nil, header{Version: 1, Log: key.origin, First: 1<<53 - 1, VKey: key.vkey})); n > headerRoom {
		t.Errorf("a header takes %d, %d are kept", n, headerRoom)
	}
}

// TestHowMuchAhead: an eighth of what is free, a segment's rest at most, and what is
// needed where that is more.
func TestHowMuchAhead(t *testing.T) {
	const mb = 1 << 20
	for _, c := range []struct{ size, reserved, need, free, wish, least int64 }{
		{size: 0, reserved: 0, need: 64 << 10, free: 1 << 40, wish: 64 * mb, least: 64 << 10},
		{size: 0, reserved: 0, need: 64 << 10, free: 32 * mb, wish: 4 * mb, least: 64 << 10},
		{size: 0, reserved: 0, need: 2 * mb, free: 8 * mb, wish: 2 * mb, least: 2 * mb},
		{size: 60 * mb, reserved: 64 * mb, need: 1, free: 1 << 40, wish: 0, least: 0},
		{size: 64*mb - 10, reserved: 64 * mb, need: 100, free: 1 << 40, wish: mb - 10, least: 90},
		{size: 70 * mb, reserved: 70 * mb, need: 10, free: 1 << 40, wish: mb, least: 10},
		{size: 0, reserved: 0, need: 10, free: 0, wish: 10, least: 10},
	} {
		if wish, least := toReserve(c.size, c.reserved, c.need, 64*mb, c.free); wish != c.wish || least != c.least {
			t.Errorf("%+v: %d, %d", c, wish, least)
		}
	}
}
