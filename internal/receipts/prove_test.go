package receipts_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"
	"pgregory.net/rapid"

	"agentgw/internal/receipts"
)

// proofParts takes a proof apart by https://c2sp.org/tlog-proof alone.
type proofParts struct {
	line       []byte
	index      int
	path       [][]byte
	checkpoint string
}

func takeApart(t testing.TB, proof []byte) (p proofParts) {
	t.Helper()
	head, checkpoint, _ := strings.Cut(string(proof), "\n\n")
	lines := strings.Split(head, "\n")
	if len(lines) < 3 || lines[0] != "c2sp.org/tlog-proof@v1" {
		t.Fatalf("not a proof: %s", proof)
	}
	var err error
	if p.line, err = base64.StdEncoding.DecodeString(strings.TrimPrefix(lines[1], "extra ")); err != nil {
		t.Fatal(err)
	}
	if p.index, err = strconv.Atoi(strings.TrimPrefix(lines[2], "index ")); err != nil {
		t.Fatal(err)
	}
	for _, l := range lines[3:] {
		h, err := base64.StdEncoding.DecodeString(l)
		if err != nil || len(h) != 32 {
			t.Fatalf("%v: %q", err, l)
		}
		p.path = append(p.path, h)
	}
	p.checkpoint = checkpoint
	return p
}

// prove finds a receipt and proves its records.
func prove(l *receipts.Log, id string) ([]receipts.Proof, error) {
	records, err := find(l, id)
	if err != nil || len(records) == 0 {
		return nil, fmt.Errorf("%s: %d records: %w", id, len(records), err)
	}
	return l.Prove(records)
}

// auditPath is RFC 6962, section 2.1.1, as it stands there.
func auditPath(m int, leaves [][32]byte) (path [][]byte) {
	n := len(leaves)
	if n == 1 {
		return nil
	}
	k := 1
	for k*2 < n {
		k *= 2
	}
	if m < k {
		other := treeHash(leaves[k:])
		return append(auditPath(m, leaves[:k]), other[:])
	}
	other := treeHash(leaves[:k])
	return append(auditPath(m-k, leaves[k:]), other[:])
}

// history is a log and what an independent reading of it says.
type history struct {
	*trees
	t       testing.TB
	vkey    string
	records map[string][]receipts.Stored // by receipt
	all     [][32]byte                   // the log's own leaves
}

func historyOf(t testing.TB, dir, vkey string) *history {
	t.Helper()
	h := &history{&trees{originOf(vkey), map[string][][32]byte{}}, t, vkey, map[string][]receipts.Stored{}, nil}
	err := receipts.Scan(filepath.Join(dir, "receipts"), func(s receipts.Stored) error {
		s.Line = bytes.Clone(s.Line)
		h.take(s)
		h.all = append(h.all, leafHash(s.Line))
		h.records[s.Record.ID] = append(h.records[s.Record.ID], s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// check holds proofs of one receipt to what the log says, hash by hash.
func (h *history) check(id string, proofs []receipts.Proof) {
	h.t.Helper()
	if len(proofs) != len(h.records[id]) {
		h.t.Fatalf("%s: %d proofs of %d records", id, len(proofs), len(h.records[id]))
	}
	for i, p := range proofs {
		s := h.records[id][i]
		leaves, index := h.all, int(s.Index)
		if s.Record.Tenant != "" {
			leaves, index = h.leaves[s.Record.Tenant], int(s.Record.Seq-1)
		}
		if !bytes.Equal(p.Record, s.Line) {
			h.t.Errorf("%s: another record: %s", id, p.Record)
		}
		got := takeApart(h.t, p.Text)
		text := strings.SplitAfterN(got.checkpoint, "\n", 4)
		size, err := strconv.Atoi(strings.TrimSpace(text[1]))
		if err != nil || size <= index || size > len(leaves) {
			h.t.Fatalf("%s: a checkpoint of %s records, leaf %d of %d: %v", id, text[1], index, len(leaves), err)
		}
		origin, root := h.log, treeHash(leaves[:size])
		if s.Record.Tenant != "" {
			origin = h.origin(s.Record.Tenant)
		}
		if want := fmt.Sprintf("%s\n%d\n%s\n", origin, size, base64.StdEncoding.EncodeToString(root[:])); want != strings.Join(text[:3], "") {
			h.t.Errorf("%s: checkpoint\n%s, want\n%s", id, got.checkpoint, want)
		}
		if !bytes.Equal(got.line, s.Line) || got.index != index || !slices.EqualFunc(got.path, auditPath(index, leaves[:size]), bytes.Equal) {
			h.t.Errorf("%s: record %d: not the path of leaf %d in %d: %s", id, i, index, size, p.Text)
		}
		r, err := receipts.VerifyProof(p.Text, h.vkey)
		if err != nil || r.Verdict != receipts.Holds || r.ID != id || len(r.Records) != 1 {
			h.t.Errorf("%s: %+v, %v", id, r, err)
		}
	}
}

// TestEachReceiptIsProven: of random histories of many tenants, across tiles,
// segments and restarts, each receipt has a proof, by a running log and from its
// files, which is the one that RFC 6962 says; and it is good for nothing else.
func TestEachReceiptIsProven(t *testing.T) {
	rounds, lengths := 3, []int{1, 2, 3, 20, 257}
	if drill() {
		rounds, lengths = 12, []int{1, 2, 3, 60, 255, 256, 257}
	}
	if !drill() {
		checks := flag.Lookup("rapid.checks")
		defer checks.Value.Set(checks.Value.String())
		checks.Value.Set("30")
	}
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "")
		if err != nil {
			rt.Fatal(err)
		}
		clock := clockwork.NewFakeClockAt(noon)
		segment := rapid.SampledFrom([]int64{20_000, 1 << 20}).Draw(rt, "segment")
		open := func() *receipts.Log {
			o := receipts.Options{Clock: clock, Replica: "gw-1"}
			receipts.SetNoSync(&o)
			receipts.SetSegmentSize(&o, segment)
			l, err := receipts.Open(dir, o)
			if err != nil {
				rt.Fatal(err)
			}
			return l
		}
		l := open()
		defer func() { l.Close() }()
		tenants := rapid.IntRange(1, 6).Draw(rt, "tenants")
		var ids []string
		for i := range rapid.IntRange(1, rounds).Draw(rt, "rounds") {
			// A round is of one tenant, or of several in turn, or of strangers.
			who := rapid.IntRange(-1, tenants).Draw(rt, "who")
			for j := range rapid.SampledFrom(lengths).Draw(rt, "many") {
				id := fmt.Sprintf("%d-%d", i, j)
				r := of(fmt.Sprintf("tenant:%d", who), id)
				switch who {
				case -1:
					r = &receipts.Record{Kind: receipts.KindRefusal, ID: id, Decision: receipts.Refused}
				case tenants:
					r.Tenant = fmt.Sprintf("tenant:%d", j%tenants)
				}
				if _, err := l.Append(r); err != nil {
					rt.Fatal(err)
				}
				ids = append(ids, id)
			}
			clock.Advance(rapid.SampledFrom([]time.Duration{0, time.Second, 6 * time.Second}).Draw(rt, "pause"))
			if rapid.IntRange(0, 3).Draw(rt, "restart") == 0 {
				if err := l.Close(); err != nil {
					rt.Fatal(err)
				}
				l = open()
			}
			// Some while it grows: those who ask early get smaller trees.
			if rapid.Bool().Draw(rt, "ask") {
				if _, err := prove(l, rapid.SampledFrom(ids).Draw(rt, "early")); err != nil {
					rt.Fatal(err)
				}
			}
		}
		l.Close()
		l = open()
		h := historyOf(t, dir, l.VerifierKey())
		asked := slices.Compact([]string{ids[0], ids[len(ids)-1], rapid.SampledFrom(ids).Draw(rt, "id"), rapid.SampledFrom(ids).Draw(rt, "id")})
		for _, id := range asked {
			proofs, err := prove(l, id)
			if err != nil {
				rt.Fatal(err)
			}
			if h.records[id][0].Record.Tenant != "" {
				h.check(id, proofs)
			} else if proofs[0].Text != nil {
				rt.Fatal("a running log proves a stranger's record")
			}
		}
		for _, id := range asked[:min(2, len(asked))] {
			proofs, err := receipts.ProveIn(dir, id, nil)
			if err != nil {
				rt.Fatal(err)
			}
			h.check(id, proofs)
			other := h.records[rapid.SampledFrom(ids).Draw(rt, "other")][0]
			if other.Record.ID == id {
				continue
			}
			p := takeApart(t, proofs[0].Text)
			forged := strings.Replace(string(proofs[0].Text), base64.StdEncoding.EncodeToString(p.line), base64.StdEncoding.EncodeToString(other.Line), 1)
			if r, err := receipts.VerifyProof([]byte(forged), h.vkey); err != nil || r.Verdict != receipts.Broken {
				rt.Fatalf("the proof of %s shows %s: %v %v", id, other.Record.ID, r, err)
			}
		}
	})
}

// provenParams are those of the call d of provenLog, under provenSalt.
const provenParams = `{"amount":9007199254740993}`

var provenSalt = sha256.Sum256([]byte("d"))

// provenLog is a log with receipts of two tenants and the proofs of one of them:
// an intent and its outcome, the last of the tenant's five records.
func provenLog(t testing.TB) (dir, vkey string, l *receipts.Log, proofs []receipts.Proof) {
	t.Helper()
	dir = t.TempDir()
	l = openLog(t, dir)
	mustAppend(t, l, of("tenant:acme", "a"), of("tenant:other", "o"), of("tenant:acme", "b"), of("tenant:acme", "c"))
	first, last := intent("d"), outcome("d")
	first.Params = receipts.HashParams(provenSalt, "k", []byte(provenParams))
	last.Params = first.Params
	mustAppend(t, l, first, of("tenant:other", "p"), last)
	proofs, err := prove(l, "d")
	if err != nil || len(proofs) != 2 {
		t.Fatal(proofs, err)
	}
	return dir, l.VerifierKey(), l, proofs
}

// TestEveryBitOfAProofCounts, and every byte taken out or added.
func TestEveryBitOfAProofCounts(t *testing.T) {
	_, vkey, _, proofs := provenLog(t)
	for _, p := range proofs {
		for i := range p.Text {
			changed := bytes.Clone(p.Text)
			try := func(what string, text []byte) {
				r, err := receipts.VerifyProof(text, vkey)
				if err != nil || r.Verdict == receipts.Holds || len(r.Records) != 0 || r.Why == "" {
					t.Errorf("%s, byte %d (%q): %+v %v", what, i, p.Text[i], r, err)
				}
			}
			for bit := range 8 {
				changed[i] = p.Text[i] ^ 1<<bit
				try(fmt.Sprintf("bit %d", bit), changed)
			}
			try("out", slices.Delete(bytes.Clone(p.Text), i, i+1))
			try("twice", slices.Insert(bytes.Clone(p.Text), i, p.Text[i]))
			try("cut", p.Text[:i])
		}
	}
}

// TestProofIsOfItsTreeAlone: parts of good proofs put together otherwise.
func TestProofIsOfItsTreeAlone(t *testing.T) {
	dir, vkey, l, proofs := provenLog(t)
	text := func(id string) string {
		p, err := prove(l, id)
		if err != nil {
			t.Fatal(err)
		}
		return string(p[0].Text)
	}
	a, o, d := text("a"), text("o"), string(proofs[1].Text)
	swap := func(text, with string, of func(string) string) string {
		return strings.Replace(text, of(text), of(with), 1)
	}
	checkpoint := func(s string) string { return takeApart(t, []byte(s)).checkpoint }
	extra := func(s string) string { return strings.Split(s, "\n")[1] }
	index := func(s string) string { return strings.Split(s, "\n")[2] }
	_, foreign, _, _ := provenLog(t)
	var key string
	for id, s := range historyOf(t, dir, vkey).records {
		if s[0].Record.Kind == receipts.KindKey {
			key = id
		}
	}
	own, err := receipts.ProveIn(dir, key, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		text, vkey string
		verdict    receipts.Verdict
	}{
		"as it was made":                 {d, vkey, receipts.Holds},
		"two of one receipt":             {string(proofs[0].Text) + d, vkey, receipts.Holds},
		"a record of the log itself":     {string(own[0].Text), vkey, receipts.Holds},
		"of two receipts":                {a + d, vkey, receipts.Broken},
		"two, of which one is cut":       {string(proofs[0].Text) + d[:len(d)-20], vkey, receipts.Broken},
		"something behind it":            {d + "\n", vkey, receipts.Broken},
		"something before it":            {"\n" + d, vkey, receipts.Broken},
		"line ends of another system":    {strings.ReplaceAll(d, "\n", "\r\n"), vkey, receipts.Broken},
		"nothing":                        {"", vkey, receipts.Broken},
		"another log's key":              {d, foreign, receipts.Untrusted},
		"another tenant's checkpoint":    {swap(d, o, checkpoint), vkey, receipts.Broken},
		"another tenant's record":        {swap(a, o, extra), vkey, receipts.Broken},
		"another place":                  {swap(d, a, index), vkey, receipts.Broken},
		"the log's checkpoint":           {strings.Replace(d, checkpoint(d), string(l.Checkpoint()), 1), vkey, receipts.Broken},
		"another's signature beside":     {d + "— witness.example " + base64.StdEncoding.EncodeToString(make([]byte, 68)) + "\n", vkey, receipts.Broken},
		"a checkpoint without signature": {d[:strings.LastIndex(d, "\n— ")+1], vkey, receipts.Broken},
		"the key's own proof elsewhere":  {swap(string(own[0].Text), d, checkpoint), vkey, receipts.Broken},
	} {
		r, err := receipts.VerifyProof([]byte(c.text), c.vkey)
		if err != nil || r.Verdict != c.verdict {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	if _, err := receipts.VerifyProof([]byte(d), "nonsense"); err == nil {
		t.Error("any text is a key")
	}
}

// TestForgedTrees: what the holder of the signing key may sign is not all that a
// proof can show: a record is in its own tenant's tree, at its own place, and the
// tree has its name from its first record.
func TestForgedTrees(t *testing.T) {
	dir, vkey, l, _ := provenLog(t)
	mustAppend(t, l, &receipts.Record{Kind: receipts.KindRefusal, ID: "second stranger", Decision: receipts.Refused})
	h := historyOf(t, dir, vkey)
	first, second := h.records["a"][0].Line, h.records["b"][0].Line
	var stranger []byte
	for _, s := range h.records {
		if s[0].Record.Kind == receipts.KindKey {
			stranger = s[0].Line
		}
	}
	good := h.origin("tenant:acme")
	for name, c := range map[string]struct {
		origin string
		leaves [][]byte
		index  int
		ok     bool
	}{
		"as it is":                      {good, [][]byte{first, second}, 1, true},
		"the first":                     {good, [][]byte{first, second}, 0, true},
		"another name, at the first":    {good[:len(good)-1] + "x", [][]byte{first, second}, 0, false},
		"a name in capitals":            {h.log + "/t/" + strings.ToUpper(good[len(good)-32:]), [][]byte{first, second}, 1, false},
		"a name that is no hex":         {h.log + "/t/" + strings.Repeat("x", 32), [][]byte{first, second}, 1, false},
		"a name that is too long":       {good + "0", [][]byte{first, second}, 1, false},
		"the first of another tree":     {h.origin("tenant:other"), [][]byte{first, second}, 0, false},
		"at another's place":            {good, [][]byte{second, first}, 1, false},
		"once more":                     {good, [][]byte{first, second, second}, 2, false},
		"one without a tenant":          {good, [][]byte{stranger}, 0, false},
		"the second of these":           {good, [][]byte{first, h.records["second stranger"][0].Line}, 1, false},
		"in the log's own tree":         {h.log, [][]byte{second, first}, 1, true},
		"in a tree of another log":      {"agentgate/00000000000000000000000000000000/t/" + good[len(good)-32:], [][]byte{first, second}, 1, false},
		"in something below the tree":   {good + "/x", [][]byte{first, second}, 1, false},
		"in something below the log":    {h.log + "/x", [][]byte{first, second}, 1, false},
		"not in what is below its name": {h.log + "/t/", [][]byte{first, second}, 1, false},
	} {
		forged, err := receipts.ForgeProof(dir, c.origin, c.leaves, c.index)
		if err != nil {
			t.Fatal(err)
		}
		r, err := receipts.VerifyProof(forged, vkey)
		if err != nil || (r.Verdict == receipts.Holds) != c.ok {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}

// TestOneSignatureASecond: a tenant that asks and asks gets the checkpoint that
// it had, unless that does not cover the record or a second has passed.
func TestOneSignatureASecond(t *testing.T) {
	clock := clockwork.NewFakeClockAt(noon)
	l := openLog(t, t.TempDir(), func(o *receipts.Options) { o.Clock = clock })
	sizeOf := func(id string) string {
		t.Helper()
		p, err := prove(l, id)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(takeApart(t, p[0].Text).checkpoint, "\n")[1]
	}
	add := func(ids ...string) {
		for _, id := range ids {
			mustAppend(t, l, of("tenant:acme", id))
		}
	}
	add("a", "b")
	for i, step := range []struct {
		add  string
		wait time.Duration
		ask  string
		size string
	}{
		{"", 0, "a", "2"},
		{"c", 0, "a", "2"},
		{"", 999 * time.Millisecond, "b", "2"},
		{"", 0, "c", "3"}, // not covered
		{"d", 999 * time.Millisecond, "a", "3"},
		{"", time.Millisecond, "a", "4"}, // a second after
		{"", time.Minute, "a", "4"},
	} {
		if step.add != "" {
			add(step.add)
		}
		clock.Advance(step.wait)
		if got := sizeOf(step.ask); got != step.size {
			t.Errorf("step %d: a tree of %s, want %s", i, got, step.size)
		}
	}
}

// TestLeavesAreDerived: the hashes beside the segments are written anew where
// they are not as the segments say, and what is wrong in them proves nothing.
func TestLeavesAreDerived(t *testing.T) {
	dir := t.TempDir()
	small := func(o *receipts.Options) { receipts.SetSegmentSize(o, 50_000); receipts.SetNoSync(o) }
	l := openLog(t, dir, small)
	for i := range 700 {
		mustAppend(t, l, of(fmt.Sprintf("tenant:%d", i%7/5), fmt.Sprint(i)))
	}
	l.Close()
	files, err := filepath.Glob(filepath.Join(dir, "receipts", "*.leaves"))
	if err != nil || len(files) != len(segments(t, dir)) || len(files) < 3 {
		t.Fatal(files, err)
	}
	whole := map[string][]byte{}
	total := 0
	for _, f := range files {
		whole[f] = read(t, f)
		total += len(whole[f])
	}
	if total != 701*40 {
		t.Errorf("%d bytes for 701 entries", total)
	}
	for name, spoil := range map[string]func(f string){
		"gone":      func(f string) { os.Remove(f) },
		"empty":     func(f string) { write(t, f, nil) },
		"cut":       func(f string) { write(t, f, whole[f][:len(whole[f])/3]) },
		"zeroed":    func(f string) { write(t, f, make([]byte, len(whole[f]))) },
		"a bit off": func(f string) { b := bytes.Clone(whole[f]); b[len(b)/2] ^= 1; write(t, f, b) },
	} {
		for _, f := range files {
			spoil(f)
		}
		l := openLog(t, dir, small)
		h := historyOf(t, dir, l.VerifierKey())
		for _, id := range []string{"0", "300", "699"} {
			proofs, err := prove(l, id)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			h.check(id, proofs)
		}
		l.Close()
		for f, want := range whole {
			if !bytes.Equal(read(t, f), want) {
				t.Errorf("%s: %s is not as it was", name, filepath.Base(f))
			}
		}
	}
	// Under a running log there is an error, and no wrong proof.
	l = openLog(t, dir, small)
	for _, f := range files {
		b := bytes.Clone(whole[f])
		for i := range b {
			if i%40 < 32 { // the hashes; where they stand is right
				b[i] ^= 0x10
			}
		}
		write(t, f, b)
	}
	for _, id := range []string{"0", "300", "699"} {
		if proofs, err := prove(l, id); err == nil || proofs != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
}

// TestLeavesThatCannotBeWritten fail nothing, and come back by themselves; what is in
// memory is proven meanwhile.
func TestLeavesThatCannotBeWritten(t *testing.T) {
	const many = 2000 // more than are written at once
	dir := t.TempDir()
	in := filepath.Join(dir, "receipts", "00000000000000000000.leaves")
	if err := os.MkdirAll(in, 0o700); err != nil { // a folder in its place
		t.Fatal(err)
	}
	l := openLog(t, dir, func(o *receipts.Options) { o.Sync = receipts.SyncInterval; receipts.SetNoSync(o) })
	for i := range many {
		mustAppend(t, l, of("tenant:acme", fmt.Sprint(i)))
	}
	l.Close()
	l = openLog(t, dir, func(o *receipts.Options) { receipts.SetNoSync(o); receipts.SetSegmentSize(o, 1<<20) })
	mustAppend(t, l, of("tenant:acme", "meanwhile"))
	proven := func(ids ...string) {
		t.Helper()
		h := historyOf(t, dir, l.VerifierKey())
		for _, id := range ids {
			proofs, err := prove(l, id)
			if err != nil {
				t.Fatal(err)
			}
			h.check(id, proofs)
		}
	}
	proven("7", "1999", "meanwhile")
	if err := os.Remove(in); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, of("tenant:acme", "then"))
	eventually(t, "they are written", func() bool { info, err := os.Stat(in); return err == nil && info.Size() >= many*40 })
	proven("7", "1999", "meanwhile", "then")
}

// TestProveInARunningFolder: from the files alone, beside a log that grows; an id
// that is nowhere has no proof, and a record under no signature is told of.
func TestProveInARunningFolder(t *testing.T) {
	dir, vkey, l, _ := provenLog(t)
	eventually(t, "a signature over all", func() bool { return bytes.Equal(newest(t, dir), l.Checkpoint()) })
	proofs, err := receipts.ProveIn(dir, "d", nil)
	if err != nil {
		t.Fatal(err)
	}
	historyOf(t, dir, vkey).check("d", proofs)
	if proofs, err := receipts.ProveIn(dir, "nobody", nil); err != nil || proofs != nil {
		t.Error(proofs, err)
	}
	l.Close()
	text := read(t, segmentFile(dir))
	write(t, segmentFile(dir), text[:bytes.LastIndex(text, []byte(`{"checkpoint":`))])
	write(t, filepath.Join(dir, "receipts", "checkpoint"), nil)
	if _, err := receipts.ProveIn(dir, "d", nil); err == nil || !strings.Contains(err.Error(), "under no signature yet") {
		t.Error(err)
	}
	if _, err := receipts.ProveIn(dir, "c", nil); err != nil {
		t.Error(err)
	}
	// Nothing is signed over what the log's own newest signature is not over, and
	// nothing by a signature that is none.
	checkpoint := l.Checkpoint()
	cut := text[:bytes.LastIndex(text, []byte(`{"checkpoint":`))]
	for what, c := range map[string]struct{ segment, checkpoint []byte }{
		"another record": {append(bytes.Clone(cut[:len(cut)-300]), bytes.Replace(cut[len(cut)-300:], []byte(`"status":200`), []byte(`"status":201`), 1)...), checkpoint},
		"no signature":   {cut, append(bytes.Clone(checkpoint[:len(checkpoint)-9]), "AAAAAAA=\n"...)},
	} {
		write(t, segmentFile(dir), c.segment)
		write(t, filepath.Join(dir, "receipts", "checkpoint"), c.checkpoint)
		if proofs, err := receipts.ProveIn(dir, "c", nil); err == nil || proofs != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	write(t, segmentFile(dir), text)
	os.Remove(filepath.Join(dir, "receipt-signing-key"))
	if _, err := receipts.ProveIn(dir, "c", nil); !os.IsNotExist(err) {
		t.Error(err)
	}
}

// TestProofShowsNothingOfOthers: what one tenant is given depends on its own calls
// alone: its entries, its proofs and its checkpoint are the same to the byte,
// whatever others call and how often. Where others came in between, a record's tag
// is another, since it is a MAC over the index too, and with it each hash: then all
// but these is the same, and they tell nothing to whoever has not the key.
func TestProofShowsNothingOfOthers(t *testing.T) {
	const mine = 300
	other := func(tenant, service string) func(l *receipts.Log, i int) {
		return func(l *receipts.Log, i int) {
			r := of(tenant, fmt.Sprint("b-", i))
			r.Service = service
			mustAppend(t, l, r)
		}
	}
	stranger := func(l *receipts.Log, _ int) {
		mustAppend(t, l, &receipts.Record{Kind: receipts.KindRefusal, Decision: receipts.Refused, Code: "unauthenticated"})
	}
	run := func(between func(l *receipts.Log, i int), each, after int) (given, shape []string) {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "receipt-signing-key.new"), read(t, filepath.Join(golden, "receipt-signing-key")))
		o := receipts.Options{Clock: clockwork.NewFakeClockAt(noon), Replica: "gw-1"}
		receipts.SetNoSync(&o)
		receipts.SetNewID(&o, func() string { return "of-the-log-itself" })
		l, err := receipts.Open(dir, o)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		for i := range mine {
			for j := range each {
				between(l, i*each+j)
			}
			e := mustAppend(t, l, of("tenant:acme", fmt.Sprintf("mine-%d", i)))
			given = append(given, fmt.Sprintf("%x %s %d", e.Leaf, e.Tree, e.TreeIndex))
			shape = append(shape, fmt.Sprint(len(e.Tree), e.TreeIndex))
		}
		for j := range after {
			between(l, mine*each+j)
		}
		for i := range mine {
			proofs, err := prove(l, fmt.Sprintf("mine-%d", i))
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(proofs)
			if err != nil {
				t.Fatal(err)
			}
			given = append(given, string(text))
			p := takeApart(t, proofs[0].Text)
			record, _, _ := strings.Cut(string(p.line), `"tag"`)
			shape = append(shape, fmt.Sprint(record, p.index, len(p.path), len(proofs[0].Text), strings.Split(p.checkpoint, "\n")[1]))
		}
		return given, shape
	}
	same := func(what string, got, want []string) {
		t.Helper()
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%s: %s\nwant %s", what, got[i], want[i])
				return
			}
		}
	}
	alone, shape := run(stranger, 0, 0)
	more, _ := run(other("tenant:b", "x"), 0, 1000)
	same("a thousand calls of another after its own", more, alone)
	beside, _ := run(stranger, 1, 0)
	for what, between := range map[string]func(l *receipts.Log, i int){
		"another":              other("tenant:b", "x"),
		"another's long words": other("tenant:b", strings.Repeat("much ", 300)),
		"many others": func(l *receipts.Log, i int) {
			mustAppend(t, l, of(fmt.Sprint("human:", i), fmt.Sprint("h-", i)))
		},
	} {
		got, _ := run(between, 1, 0)
		same(what, got, beside)
	}
	_, crowded := run(other("tenant:b", "x"), 3, 0)
	same("three calls of another before each", crowded, shape)
}

// TestTenantAnchor: what a tenant was shown, its auditor's view of the whole log
// has to meet: the same records, in the same order, and none of them missing.
func TestTenantAnchor(t *testing.T) {
	dir, vkey, l, proofs := provenLog(t)
	shown := []byte(takeApart(t, proofs[1].Text).checkpoint)
	l.Close()
	fork := copyLog(t, dir)
	sign := func(d string, ids ...string) []byte {
		t.Helper()
		l, err := reopen(d)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			mustAppend(t, l, of("tenant:acme", id))
		}
		p, err := prove(l, ids[len(ids)-1])
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		return []byte(takeApart(t, p[0].Text).checkpoint)
	}
	later := sign(dir, "e", "f")
	forked := sign(fork, "e-of-the-fork")
	larger := sign(fork, "g", "h", "i")
	_, _, _, foreign := provenLog(t)
	for name, c := range map[string]struct {
		anchor  []byte
		verdict receipts.Verdict
		entry   uint64
	}{
		"shown before":             {shown, receipts.Unproven, 0},
		"shown now":                {later, receipts.Unproven, 0},
		"shown by a fork":          {forked, receipts.Broken, 8},
		"of more than there are":   {larger, receipts.Broken, 0},
		"of another log":           {[]byte(takeApart(t, foreign[1].Text).checkpoint), receipts.Untrusted, 0},
		"with another's signature": {append(bytes.Clone(shown[:bytes.LastIndexByte(shown, ' ')+1]), forked[bytes.LastIndexByte(forked, ' ')+1:]...), receipts.Untrusted, 0},
	} {
		r := verdict(t, dir, vkey, c.anchor)
		if r.Verdict != c.verdict || c.entry != 0 && (r.Damage == nil || r.Damage.Index != c.entry) {
			t.Errorf("%s: %s (%s)", name, r.Verdict, r.Why)
		}
		if c.verdict == receipts.Unproven && (r.TreeAnchor == nil || r.TreeAnchor.Tenant != "tenant:acme") {
			t.Errorf("%s: %+v", name, r.TreeAnchor)
		}
	}
}

// TestProofsWhileItGrows: whoever asks, whenever, gets a proof that holds, and of one
// tree and size there is one root alone.
func TestProofsWhileItGrows(t *testing.T) {
	for _, sync := range []string{receipts.SyncAlways, receipts.SyncInterval} {
		inBubble(t, func(t *testing.T) { proofsWhileItGrows(t, sync) })
	}
}

func proofsWhileItGrows(t *testing.T, mode string) {
	const writers, each = 4, 150
	dir := t.TempDir()
	l := openLog(t, dir, func(o *receipts.Options) {
		o.Clock, o.Sync = clockwork.NewRealClock(), mode
		receipts.SetNoSync(o)
		receipts.SetSegmentSize(o, 60_000)
	})
	var mu sync.Mutex
	roots := map[string]string{} // by tree and size
	shown := func(text []byte) {
		checkpoint := strings.SplitN(takeApart(t, text).checkpoint, "\n", 4)
		mu.Lock()
		defer mu.Unlock()
		at := checkpoint[0] + " " + checkpoint[1]
		if other, there := roots[at]; there && other != checkpoint[2] {
			t.Errorf("two roots of %s", at)
		}
		roots[at] = checkpoint[2]
	}
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				id := fmt.Sprintf("%d-%d", w, i)
				if _, err := l.Append(of(fmt.Sprintf("tenant:%d", i%3), id)); err != nil {
					t.Error(err)
					return
				}
				if i%5 != 0 {
					continue
				}
				var records []json.RawMessage
				for end := time.Now().Add(time.Second); len(records) == 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
					var err error
					if records, err = find(l, id); err != nil { // in interval mode it may not be there yet
						t.Error(err)
					}
				}
				proofs, err := l.Prove(records)
				if err != nil || len(proofs) != 1 {
					t.Errorf("%s: %v", id, err)
					return
				}
				if r, err := receipts.VerifyProof(proofs[0].Text, l.VerifierKey()); err != nil || r.Verdict != receipts.Holds {
					t.Errorf("%s: %+v %v", id, r, err)
				}
				shown(proofs[0].Text)
			}
		})
	}
	wg.Wait()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	h := historyOf(t, dir, l.VerifierKey())
	for tenant, leaves := range h.leaves {
		for n := range leaves {
			root := treeHash(leaves[:n+1])
			if got, there := roots[fmt.Sprintf("%s %d", h.origin(tenant), n+1)]; there && got != base64.StdEncoding.EncodeToString(root[:]) {
				t.Errorf("%s at %d: it was shown with another root", tenant, n+1)
			}
		}
	}
}

// TestProofAfterACrash: what was acknowledged before a crash is proven after it,
// and a checkpoint that was shown before holds then.
func TestProofAfterACrash(t *testing.T) {
	dir, vkey, l, proofs := provenLog(t)
	l.Close()
	text := read(t, segmentFile(dir))
	text = text[:bytes.LastIndex(text, []byte(`{"checkpoint":`))]
	write(t, segmentFile(dir), append(text, `{"batch":{"first":8,"count":1,"bytes":300}}`+"\n"+`{"v":1,"kind":"outc`...))
	write(t, filepath.Join(dir, "receipts", "checkpoint"), nil)
	l, err := reopen(dir)
	if err != nil {
		t.Fatal(err)
	}
	again, err := prove(l, "d")
	if err != nil || len(again) != 2 {
		t.Fatal(again, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	historyOf(t, dir, vkey).check("d", again)
	if r := verdict(t, dir, vkey, []byte(takeApart(t, proofs[1].Text).checkpoint)); r.Verdict != receipts.Unproven {
		t.Errorf("%s (%s)", r.Verdict, r.Why)
	}
}
