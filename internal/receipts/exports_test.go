package receipts_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/mod/sumdb/note"

	"agentgw/internal/receipts"
)

// export makes an export and reads it.
func export(t testing.TB, dir, tenant string, keep func(*receipts.Record) bool) (string, *receipts.Exported) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "export")
	done, err := receipts.Export(context.Background(), dir, tenant, keep, out, nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(read(t, out)), done
}

func verifyExport(t testing.TB, text, vkey string, anchor []byte) *receipts.ExportReport {
	t.Helper()
	r, err := receipts.VerifyExport(strings.NewReader(text), int64(len(text)), vkey, anchor, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// believed reports whether a report takes the export for good.
func believed(r *receipts.ExportReport) bool {
	return r.Verdict == receipts.Holds || r.Verdict == receipts.Unproven
}

// seqs chooses records by their place among their tenant's.
func seqs(list ...uint64) func(*receipts.Record) bool {
	return func(r *receipts.Record) bool { return slices.Contains(list, r.Seq) }
}

// checkpointOf is what an export ends with.
func checkpointOf(t testing.TB, text string) []byte {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(text), "\n")
	line, ok := strings.CutPrefix(lines[len(lines)-1], `{"checkpoint":"`)
	line, ok2 := strings.CutSuffix(line, `"}`)
	if !ok || !ok2 {
		t.Fatalf("it does not end with a checkpoint: %s", text)
	}
	return []byte(strings.ReplaceAll(line, `\n`, "\n"))
}

// TestGoldenExports: the bytes of an export are the same for ever, and today's
// reader takes them.
func TestGoldenExports(t *testing.T) {
	for name, keep := range map[string]func(*receipts.Record) bool{"acme": nil, "acme-third": seqs(3)} {
		text, _ := export(t, goldenTrees, "tenant:acme", keep)
		file := filepath.Join(goldenTrees, name+".export")
		if *update {
			write(t, file, []byte(text))
		}
		if diff := cmp.Diff(string(read(t, file)), text); diff != "" {
			t.Errorf("%s: the export has changed; that is a change of format (see %s/README.md):\n%s", name, golden, diff)
		}
		if r := verifyExport(t, text, keyOf(t, goldenTrees), nil); !believed(r) || r.Size != 4 || r.Tenant != "tenant:acme" {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// crowd is a log of the tenants key:1 to key:n, of which each has as many records
// as its name says, one after the other in turn.
func crowd(t testing.TB, n int) (dir, vkey string) {
	t.Helper()
	dir = t.TempDir()
	l := openLog(t, dir, receipts.SetNoSync)
	for i := range n {
		for k := i + 1; k <= n; k++ {
			mustAppend(t, l, of(fmt.Sprint("key:", k), fmt.Sprintf("r%d-%d", k, i)))
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, l.VerifierKey()
}

// TestExportsOfAnySelection: each is the tenant's tree, record by record and hash
// by hash as an independent reading of the log has it, and says how much it shows.
func TestExportsOfAnySelection(t *testing.T) {
	n := 10
	if os.Getenv("DRILLS") == "full" {
		n = 40
	}
	dir, vkey := crowd(t, n)
	h := historyOf(t, dir, vkey)
	random := mathrand.New(mathrand.NewPCG(1, 2))
	for k := 1; k <= n; k++ {
		tenant := fmt.Sprint("key:", k)
		leaves := h.leaves[tenant]
		for _, share := range []int{0, 1, 5, 9, 10} {
			kept := map[uint64]bool{}
			for seq := range k {
				kept[uint64(seq)+1] = random.IntN(10) < share
			}
			keep := func(r *receipts.Record) bool { return kept[r.Seq] }
			if share == 10 {
				keep = nil
			}
			text, done := export(t, dir, tenant, keep)
			r := verifyExport(t, text, vkey, nil)
			shown := strings.Count(text, `"tenant":"`+tenant+`"`)
			root := treeHash(leaves)
			if r.Verdict != receipts.Unproven || r.Size != uint64(k) || r.Shown != uint64(shown) || r.LeftOut != uint64(k-shown) ||
				r.Origin != h.origin(tenant) || r.Root != base64.StdEncoding.EncodeToString(root[:]) || (r.Tenant != tenant) != (shown == 0) {
				t.Fatalf("%s: %+v\n%s", tenant, r, text)
			}
			if done.Shown != r.Shown || done.LeftOut != r.LeftOut || done.Size != r.Size || done.Origin != r.Origin {
				t.Fatalf("%s: %+v, and it is verified as %+v", tenant, done, r)
			}
			for seq, want := range kept {
				if got := strings.Contains(text, fmt.Sprintf(`"seq":%d,`, seq)); got != want && keep != nil {
					t.Fatalf("%s: record %d is shown: %v", tenant, seq, got)
				}
			}
			if whole := verifyExport(t, text, vkey, checkpointOf(t, text)); (whole.Verdict == receipts.Holds) != (shown == k) || !whole.AnchorMet {
				t.Fatalf("%s: with an anchor: %+v", tenant, whole)
			}
		}
	}
}

// TestLeftOutIsShort: a run of records that are left out takes the fewest lines
// that there are.
func TestLeftOutIsShort(t *testing.T) {
	dir, _ := crowd(t, 20)
	for _, c := range []struct {
		show []uint64
		want string // count of each line, r for a record
	}{
		{nil, "1 1 2 4 8 4"},
		{[]uint64{1}, "r 1 2 4 8 4"},
		{[]uint64{11}, "1 1 2 4 2 r 1 4 4"},
		{[]uint64{20}, "1 1 2 4 8 2 1 r"},
		{[]uint64{1, 2, 4}, "r r 1 r 4 8 4"},
	} {
		text, _ := export(t, dir, "key:20", seqs(c.show...))
		var got []string
		for line := range strings.Lines(text) {
			var count int
			if n, _ := fmt.Sscanf(line, `{"left_out":{"count":%d,`, &count); n == 1 {
				got = append(got, fmt.Sprint(count))
			} else if strings.HasPrefix(line, `{"v":`) {
				got = append(got, "r")
			}
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%v: %s, want %s", c.show, s, c.want)
		}
	}
}

// TestAlteredExports: nothing that is done to an export without the key is taken
// for good, and what is wrong is said.
func TestAlteredExports(t *testing.T) {
	dir, vkey := crowd(t, 20)
	whole, _ := export(t, dir, "key:8", nil)
	other, _ := export(t, dir, "key:9", nil)
	selection, _ := export(t, dir, "key:8", seqs(1, 6))
	hidden, _ := export(t, dir, "key:8", seqs(6))
	theirs, _ := export(t, dir, "key:9", seqs(1, 6))
	lines := func(text string) []string { return slices.Collect(strings.Lines(text)) }
	join := func(list ...string) string { return strings.Join(list, "") }
	a, b, s, h := lines(whole), lines(other), lines(selection), lines(hidden)
	// s: header, r1, 1, 2, 1, r6, 2, checkpoint. h: header, 1, 1, 2, 1, r6, 2, checkpoint.
	if len(s) != 8 || len(h) != 8 {
		t.Fatal(selection, hidden)
	}
	half := func(line string, n int) string {
		return strings.Replace(line, `"count":2`, fmt.Sprintf(`"count":%d`, n), 1)
	}
	for _, c := range []struct{ name, text, says string }{
		{"a record of another tenant in the place of one", join(slices.Concat(a[:3], b[3:4], a[4:])...), "of tenant key:9, the others of key:8"},
		{"the first of another tenant", join(slices.Concat(a[:1], b[1:2], a[2:])...), "of tenant key:8, the others of key:9"},
		{"the records of another tenant", join(slices.Concat(b[:9], a[9:])...), "one of the records 1 to 8"},
		{"the checkpoint of another tenant", join(slices.Concat(a[:9], b[10:])...), "it covers 9 records, and the export has 8"},
		{"the last record removed", join(slices.Concat(a[:8], a[9:])...), "it covers 8 records, and the export has 7"},
		{"a record edited", strings.Replace(whole, `"status":200`, `"status":500`, 1), "one of the records 1 to 8 is not what it was signed over"},
		{"a record respelled", strings.Replace(whole, `"status":200`, `"status":0200`, 1), "line 2: "},
		{"a tag edited", strings.Replace(whole, `"tag":"`, `"tag":"!`, 1), "line 2: "},
		{"a record without a tenant", strings.ReplaceAll(whole, `,"tenant":"key:8"`, ``), "of no tenant"},
		{"no header", join(a[1:]...), "not an export"},
		{"a later version", strings.Replace(whole, `{"v":1}}`, `{"v":2}}`, 1), "a version that this program does not know"},
		{"a header that says more", strings.Replace(whole, `{"v":1}}`, `{"v":1,"whole":true}}`, 1), "a version that this program does not know"},
		{"the header twice", join(slices.Concat(a[:1], a)...), "line 2: not a line of an export"},
		{"no checkpoint", join(a[:9]...), "ends without a checkpoint"},
		{"the header alone", a[0], "ends without a checkpoint"},
		{"header and checkpoint", join(a[0], a[9]), "the export has 0"},
		{"nothing", "", "ends without a checkpoint"},
		{"a checkpoint in the middle", join(slices.Concat(a[:5], a[9:], a[5:])...), "something stands behind"},
		{"a record behind the end", whole + b[9], "something stands behind"},
		{"the checkpoint twice", whole + a[9], "something stands behind"},
		{"a byte behind the end", whole + "x", "something stands behind"},
		{"an empty line behind the end", whole + "\n", "something stands behind"},
		{"two exports", whole + other, "something stands behind"},
		{"no last line end", strings.TrimSuffix(whole, "\n"), "line 10 has no end"},
		{"an empty line", join(slices.Concat(a[:4], []string{"\n"}, a[4:])...), "line 5: not a line"},
		{"line ends of another system", strings.ReplaceAll(whole, "\n", "\r\n"), "line 1: "},
		{"a long line", a[0] + strings.Repeat("x", 1<<17) + "\n", "longer than any record"},
		{"a long line without an end", a[0] + strings.Repeat("x", 1<<17), "longer than any record"},

		{"a left-out that is of fewer", join(slices.Concat(s[:3], []string{half(s[3], 1)}, s[5:])...), "record 6 of its tenant stands where record 4"},
		{"a left-out that is of more", join(slices.Concat(s[:3], []string{half(s[3], 4)}, s[4:])...), "4 records that are left out cannot stand behind 2"},
		{"a left-out of three", join(slices.Concat(s[:3], []string{half(s[3], 3)}, s[4:])...), "not a line for records that are left out"},
		{"a left-out of none", join(slices.Concat(s[:3], []string{half(s[3], 0)}, s[4:])...), "not a line for records that are left out"},
		{"a left-out of less than none", join(slices.Concat(s[:3], []string{half(s[3], -2)}, s[4:])...), "not a line for records that are left out"},
		{"a left-out of more than there can be", join(s[0], strings.Replace(s[2], `"count":1,`, `"count":9007199254740992,`, 1), s[7]), "cannot stand behind 0"},
		{"a left-out respelled", strings.Replace(selection, `{"count":`, `{ "count":`, 1), "not a line for records that are left out"},
		{"a left-out whose hash is short", regexp.MustCompile(`"root":"....`).ReplaceAllString(selection, `"root":"`), "not a line for records that are left out"},
		{"a shown record replaced by its hash, which tells nothing wrong but is not the fewest lines",
			join(slices.Concat(s[:3], leftOutOf(a[3]), leftOutOf(a[4]), s[4:])...), "two lines for records that are left out stand where one is to"},
		{"the first leaf left out with the second", join(slices.Concat(h[:1], []string{pairOf(a[1], a[2])}, h[3:])...), "left out by itself"},
	} {
		r := verifyExport(t, c.text, vkey, nil)
		if r.Verdict != receipts.Broken || !strings.Contains(r.Why, c.says) || len(r.Proven)+len(r.NotProven) > 0 {
			t.Errorf("%s: %s: %s; want: %s", c.name, r.Verdict, r.Why, c.says)
		}
	}
	// Whoever shows less than he has makes a selection, and it says so.
	if r := verifyExport(t, join(slices.Concat(a[:4], leftOutOf(a[4]), a[5:])...), vkey, checkpointOf(t, whole)); r.Verdict != receipts.Unproven || r.LeftOut != 1 || !r.AnchorMet {
		t.Errorf("%+v", r)
	}
	// And every line by itself.
	for _, list := range [][]string{a, s} {
		for i := range list {
			removed := slices.Concat(list[:i], list[i+1:])
			twice := slices.Concat(list[:i+1], list[i:])
			altered := [][]string{removed, twice, list[:i], list[i+1:]}
			for k := i + 1; k < len(list); k++ {
				swapped := slices.Clone(list)
				swapped[i], swapped[k] = swapped[k], swapped[i]
				altered = append(altered, swapped)
			}
			for _, line := range slices.Concat(b, lines(theirs)) {
				if line != list[i] {
					altered = append(altered, slices.Concat(list[:i], []string{line}, list[i+1:]))
				}
				altered = append(altered, slices.Concat(list[:i], []string{line}, list[i:]))
			}
			for _, alt := range altered {
				if r := verifyExport(t, join(alt...), vkey, nil); r.Verdict != receipts.Broken {
					t.Fatalf("line %d: %s: %s\n%s", i+1, r.Verdict, r.Why, join(alt...))
				}
			}
		}
	}
}

// leftOutOf is the line for one record that is left out, by FORMAT.md.
func leftOutOf(line string) []string {
	hash := leafHash([]byte(strings.TrimSuffix(line, "\n")))
	return []string{fmt.Sprintf("{\"left_out\":{\"count\":1,\"root\":\"%s\"}}\n", base64.StdEncoding.EncodeToString(hash[:]))}
}

func pairOf(a, b string) string {
	root := treeHash([][32]byte{leafHash([]byte(strings.TrimSuffix(a, "\n"))), leafHash([]byte(strings.TrimSuffix(b, "\n")))})
	return fmt.Sprintf("{\"left_out\":{\"count\":2,\"root\":\"%s\"}}\n", base64.StdEncoding.EncodeToString(root[:]))
}

// TestEveryBitOfAnExportCounts: no bit can be flipped, and no byte cut off.
func TestEveryBitOfAnExportCounts(t *testing.T) {
	vkey := keyOf(t, goldenTrees)
	text := read(t, filepath.Join(goldenTrees, "acme-third.export"))
	if !believed(verifyExport(t, string(text), vkey, nil)) {
		t.Fatal("it does not hold as it is")
	}
	for i := range text {
		if r := verifyExport(t, string(text[:i]), vkey, nil); r.Verdict != receipts.Broken {
			t.Fatalf("cut after %d bytes: %+v", i, r)
		}
		for bit := range 8 {
			if bit != i%8 && os.Getenv("DRILLS") != "full" {
				continue
			}
			text[i] ^= 1 << bit
			if r := verifyExport(t, string(text), vkey, nil); believed(r) {
				t.Fatalf("bit %d of byte %d: %+v\n%s", bit, i, r, text)
			}
			text[i] ^= 1 << bit
		}
	}
}

// TestForgedExports: whoever has not the key can sign, and is not believed.
func TestForgedExports(t *testing.T) {
	// A fresh key, under the names of the log, for the same records and for altered ones.
	for _, status := range []string{"200", "500"} {
		dir, vkey := crowd(t, 3)
		skey, fresh, err := note.GenerateKey(rand.Reader, originOf(vkey))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "receipt-signing-key"), []byte(skey+"\n"))
		if err := receipts.Rewrite(dir, func(_ uint64, body []byte) []byte {
			return bytes.Replace(body, []byte(`"status":200`), []byte(`"status":`+status), 1)
		}); err != nil {
			t.Fatal(err)
		}
		text, _ := export(t, dir, "key:3", nil)
		if r := verifyExport(t, text, vkey, nil); r.Verdict != receipts.Untrusted || len(r.Proven) > 0 || !strings.Contains(text, `"status":`+status) {
			t.Errorf("%+v", r)
		}
		if r := verifyExport(t, text, fresh, nil); !believed(r) {
			t.Errorf("by its own key: %+v", r)
		}
	}
	// Another log, in which the same happened.
	dir, other := crowd(t, 3)
	text, _ := export(t, dir, "key:3", nil)
	if r := verifyExport(t, text, keyOf(t, goldenTrees), nil); r.Verdict != receipts.Untrusted || strings.Contains(r.Why, "rotation") || !believed(verifyExport(t, text, other, nil)) {
		t.Errorf("%+v", r)
	}
	if _, err := receipts.VerifyExport(strings.NewReader(text), 0, "no key", nil, nil); !errors.Is(err, receipts.ErrUsage) {
		t.Error(err)
	}
	// The log's own key, for a tree that is not the tenant's.
	h := historyOf(t, dir, other)
	var lines [][]byte
	for i := range 3 {
		lines = append(lines, h.records[fmt.Sprint("r3-", i)][0].Line)
	}
	for origin, says := range map[string]string{
		h.origin("key:2"): "has not its name from the tenant's first record",
		originOf(other):   "no tenant's tree of this log",
	} {
		proof, err := receipts.ForgeProof(dir, origin, lines, 0)
		if err != nil {
			t.Fatal(err)
		}
		forged := text[:strings.Index(text, `{"checkpoint"`)] + string(checkpointLineOf([]byte(takeApart(t, proof).checkpoint)))
		if r := verifyExport(t, forged, other, nil); r.Verdict != receipts.Broken || !strings.Contains(r.Why, says) {
			t.Errorf("%s: %+v", origin, r)
		}
	}
}

// TestAnchorsOfExports: an older checkpoint of the tree is met, and shows what
// was cut off or told otherwise since.
func TestAnchorsOfExports(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir, receipts.SetNoSync)
	anchors := map[int][]byte{}
	var texts []string
	for i := 1; i <= 6; i++ {
		mustAppend(t, l, of("tenant:acme", fmt.Sprint("a", i)), of("tenant:other", fmt.Sprint("o", i)))
		eventually(t, "the checkpoint stands in the log", func() bool {
			signed, err := receipts.NewestCheckpoint(filepath.Join(dir, "receipts"))
			return err == nil && bytes.Equal(signed, l.Checkpoint())
		})
		text, _ := export(t, dir, "tenant:acme", nil) // of a log that is open
		texts, anchors[i] = append(texts, text), checkpointOf(t, text)
	}
	vkey := l.VerifierKey()
	whole := texts[5]
	selection, _ := export(t, dir, "tenant:acme", seqs(5))
	theirs, _ := export(t, dir, "tenant:other", nil)
	h := historyOf(t, dir, vkey)
	proof, err := receipts.ForgeProof(dir, h.origin("tenant:acme"), [][]byte{h.records["a1"][0].Line, h.records["o2"][0].Line, h.records["a3"][0].Line}, 0)
	if err != nil {
		t.Fatal(err)
	}
	forked := []byte(takeApart(t, proof).checkpoint)
	edited := strings.Replace(whole, `"id":"a5"`, `"id":"a9"`, 1)
	for _, c := range []struct {
		name, text string
		anchor     []byte
		verdict    receipts.Verdict
		met        bool
		says       string // in all that is said
	}{
		{"the export's own", whole, anchors[6], receipts.Holds, true, "nothing up to the anchor is missing"},
		{"an older one", whole, anchors[2], receipts.Holds, true, "that nothing after the anchor's 2 records was cut off"},
		{"without its line end", whole, bytes.TrimSpace(anchors[2]), receipts.Holds, true, ""},
		{"a newer one", texts[3], anchors[5], receipts.Broken, false, "the export has 4 records, and the anchor covers 5"},
		{"one that was told otherwise", whole, forked, receipts.Broken, false, "one of the records 1 to 3 is not what the anchor was signed over"},
		{"before what was edited", edited, anchors[4], receipts.Broken, true, "one of the records 5 to 6"},
		{"behind what was edited", edited, anchors[5], receipts.Broken, false, "one of the records 1 to 5"},
		{"of another tenant", whole, checkpointOf(t, theirs), receipts.Broken, false, "the anchor is of another tenant's tree"},
		{"of the log", whole, l.Checkpoint(), receipts.Untrusted, false, "of the whole log"},
		{"of another log", whole, checkpointOf(t, string(read(t, filepath.Join(goldenTrees, "acme.export")))), receipts.Untrusted, false, "not signed by the given key"},
		{"of a selection, before what is shown", selection, anchors[4], receipts.Unproven, true, "the first 4 records are those that the anchor"},
		{"of a selection, within what is left out", selection, anchors[3], receipts.Unproven, false, "its end is among what is left out"},
		{"none", whole, nil, receipts.Unproven, false, "without an anchor"},
	} {
		r := verifyExport(t, c.text, vkey, c.anchor)
		said := strings.Join(slices.Concat([]string{r.Why}, r.Proven, r.NotProven), "\n")
		if r.Verdict != c.verdict || r.AnchorMet != c.met || !strings.Contains(said, c.says) {
			t.Errorf("%s: %+v", c.name, r)
		}
	}
	for _, none := range []string{"", "no checkpoint"} {
		if _, err := receipts.VerifyExport(strings.NewReader(whole), 0, vkey, []byte(none), nil); !errors.Is(err, receipts.ErrUsage) {
			t.Errorf("%q for an anchor: %v", none, err)
		}
	}
	if r := verdict(t, dir, vkey, anchors[4]); r.Verdict != receipts.Unproven || r.TreeAnchor == nil || r.TreeAnchor.Tenant != "tenant:acme" {
		t.Errorf("the log, with an export's checkpoint for an anchor: %+v", r)
	}
}

// TestDeclaredLossIsNoProof: what was acknowledged before it was on disk keeps an
// export from being complete, as it does a log.
func TestDeclaredLossIsNoProof(t *testing.T) {
	text, _ := export(t, golden, "tenant:acme", nil)
	r := verifyExport(t, text, keyOf(t, golden), checkpointOf(t, text))
	if r.Verdict != receipts.Unproven || r.Interval == 0 || r.Unknown != 1 || !strings.Contains(r.Why, "declare") {
		t.Errorf("%+v", r)
	}
}

// TestExportsShowNothingOfOthers: not what they do, to the byte, and not how much:
// what depends on that looks as random as a hash.
func TestExportsShowNothingOfOthers(t *testing.T) {
	made := func(others int, tenant, service string) (whole, selection string) {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "receipt-signing-key.new"), read(t, filepath.Join(goldenTrees, "receipt-signing-key")))
		l := openLog(t, dir, receipts.SetNoSync)
		for i := range 5 {
			mustAppend(t, l, of("tenant:acme", fmt.Sprint("a", i)))
			for k := range others {
				r := of(tenant, fmt.Sprintf("o%d-%d", i, k))
				r.Service = service
				mustAppend(t, l, r)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		whole, _ = export(t, dir, "tenant:acme", nil)
		selection, _ = export(t, dir, "tenant:acme", seqs(3))
		return whole, selection
	}
	wholeA, selectionA := made(3, "tenant:rival", "payroll")
	wholeB, selectionB := made(3, "tenant:enemy", "weapons")
	if wholeA != wholeB || selectionA != selectionB {
		t.Errorf("what others do shows:\n%s", cmp.Diff(wholeA, wholeB))
	}
	wholeC, selectionC := made(70, "tenant:enemy", "weapons")
	hashes := regexp.MustCompile(`"tag":"[^"]*"|"root":"[^"]*"|/t/[0-9a-f]{32}|\\n[A-Za-z0-9+/]{43}=\\n| [A-Za-z0-9+/]{91}=`)
	masked := func(text string) string { return hashes.ReplaceAllString(text, "*") }
	if diff := cmp.Diff(masked(wholeA), masked(wholeC)); diff != "" || len(wholeA) != len(wholeC) {
		t.Errorf("how much others do shows:\n%s", diff)
	}
	if diff := cmp.Diff(masked(selectionA), masked(selectionC)); diff != "" || len(selectionA) != len(selectionC) {
		t.Errorf("how much others do shows:\n%s", diff)
	}
	if wholeA == wholeC || strings.Contains(wholeA+wholeC, "rival") || strings.Contains(wholeA+wholeC, "weapons") {
		t.Error(wholeA, wholeC)
	}
}

// TestExportOrNothing: where it cannot be made there is no file, not even a part.
func TestExportOrNothing(t *testing.T) {
	ended, end := context.WithCancel(context.Background())
	end()
	for _, c := range []struct {
		name, tenant string
		ctx          context.Context
		change       func(dir string)
		is           error
		says         string
	}{
		{name: "a tenant that is not there", tenant: "tenant:nobody", is: receipts.ErrNoTenant},
		{name: "those who have no tenant", tenant: "", is: receipts.ErrNoTenant},
		{name: "interrupted", ctx: ended, is: context.Canceled},
		{name: "no signing key", change: func(dir string) { os.Remove(filepath.Join(dir, "receipt-signing-key")) }, is: fs.ErrNotExist},
		{name: "no log", change: func(dir string) { os.RemoveAll(filepath.Join(dir, "receipts")) }, is: fs.ErrNotExist},
		{name: "a record altered", says: "entry 2", change: func(dir string) {
			name := segments(t, dir)[0]
			write(t, name, bytes.Replace(read(t, name), []byte(`"out":42`), []byte(`"out":43`), 1))
		}},
		{name: "the last record altered", says: "not what the newest checkpoint was signed over", change: func(dir string) {
			list := segments(t, dir)
			name := list[len(list)-1]
			text := read(t, name)
			at := bytes.LastIndex(text, []byte(`"out":42`))
			write(t, name, slices.Concat(text[:at], []byte(`"out":43`), text[at+8:]))
		}},
		{name: "a segment gone", says: "before its newest checkpoint", change: func(dir string) { os.Remove(segments(t, dir)[1]) }},
		{name: "a key of another log", says: "the newest checkpoint", change: func(dir string) {
			another, _ := crowd(t, 1)
			write(t, filepath.Join(dir, "receipt-signing-key"), read(t, filepath.Join(another, "receipt-signing-key")))
		}},
	} {
		dir, outs := copyLog(t, goldenTrees), t.TempDir()
		if c.change != nil {
			c.change(dir)
		}
		if c.ctx == nil {
			c.ctx = context.Background()
		}
		if c.name != "those who have no tenant" && c.tenant == "" {
			c.tenant = "tenant:acme"
		}
		_, err := receipts.Export(c.ctx, dir, c.tenant, nil, filepath.Join(outs, "export"), nil)
		if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.name, err)
		}
		if left, _ := os.ReadDir(outs); len(left) > 0 {
			t.Errorf("%s: %s is left", c.name, left)
		}
	}
}

// TestExportReplacesNothing: neither a file nor a link, and it does not stand among
// the log's own.
func TestExportReplacesNothing(t *testing.T) {
	out := filepath.Join(t.TempDir(), "export")
	write(t, out, []byte("mine"))
	if _, err := receipts.Export(context.Background(), goldenTrees, "tenant:acme", nil, out, nil); !errors.Is(err, fs.ErrExist) || string(read(t, out)) != "mine" {
		t.Errorf("%v: %s", err, read(t, out))
	}
	link := out + "-link"
	if err := os.Symlink("nowhere", link); err != nil {
		t.Fatal(err)
	}
	if _, err := receipts.Export(context.Background(), goldenTrees, "tenant:acme", nil, link, nil); !errors.Is(err, fs.ErrExist) {
		t.Error(err)
	}
	dir := copyLog(t, goldenTrees)
	if _, err := receipts.Export(context.Background(), dir, "tenant:acme", nil, filepath.Join(dir, "receipts", "acme.jsonl"), nil); err == nil {
		t.Error("it was written into the folder of the log, where it is taken for a segment")
	}
}

// TestUnreadableExport: of what cannot be read nothing is said.
func TestUnreadableExport(t *testing.T) {
	text := string(read(t, filepath.Join(goldenTrees, "acme.export")))
	broken := errors.New("the disk is gone")
	for i := range 3 {
		cut := len(text) * i / 2
		in := &failing{strings.NewReader(text[:cut]), broken}
		if r, err := receipts.VerifyExport(in, 0, keyOf(t, goldenTrees), nil, nil); !errors.Is(err, broken) || r != nil {
			t.Errorf("after %d bytes: %+v, %v", cut, r, err)
		}
	}
}

type failing struct {
	*strings.Reader
	err error
}

func (f *failing) Read(b []byte) (int, error) {
	if f.Len() == 0 {
		return 0, f.err
	}
	return f.Reader.Read(b)
}

func FuzzExport(f *testing.F) {
	vkey := keyOf(f, goldenTrees)
	for _, name := range []string{"acme", "acme-third"} {
		f.Add(read(f, filepath.Join(goldenTrees, name+".export")))
	}
	f.Add([]byte(receipts.ExportHeader))
	f.Add([]byte(receipts.ExportHeader + `{"left_out":{"count":9007199254740992,"root":"` + strings.Repeat("A", 43) + "=\"}}\n"))
	written := map[string]bool{}
	err := receipts.Scan(filepath.Join(goldenTrees, "receipts"), func(s receipts.Stored) error {
		written[string(s.Line)] = true
		return nil
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := receipts.VerifyExport(bytes.NewReader(text), int64(len(text)), vkey, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !believed(r) {
			return
		}
		for line := range bytes.Lines(text) {
			if bytes.HasPrefix(line, []byte(`{"v":`)) && !written[string(bytes.TrimSuffix(line, []byte("\n")))] {
				t.Fatalf("it shows what nobody wrote: %s", line)
			}
		}
	})
}
