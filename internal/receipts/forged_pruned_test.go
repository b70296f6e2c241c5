package receipts_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"agentgw/internal/receipts"
)

// leftOuts are the lines for all of a tree's leaves, which are left out.
func leftOuts(leaves []tlog.Hash) (text string) {
	for at := 0; at < len(leaves); {
		n := 1
		for at > 0 && at%(2*n) == 0 && at+2*n <= len(leaves) {
			n *= 2
		}
		text += fmt.Sprintf("{\"left_out\":{\"count\":%d,\"root\":\"%s\"}}\n", n, base64.StdEncoding.EncodeToString(rootOver(leaves[at:at+n])))
		at += n
	}
	return text
}

func rootOver(leaves []tlog.Hash) []byte {
	if len(leaves) == 1 {
		return leaves[0][:]
	}
	h := tlog.NodeHash(tlog.Hash(rootOver(leaves[:len(leaves)/2])), tlog.Hash(rootOver(leaves[len(leaves)/2:])))
	return h[:]
}

// invented are the leaves of receipts that were never written.
func invented(n int) (leaves []tlog.Hash) {
	for i := range n {
		leaves = append(leaves, tlog.RecordHash(fmt.Appendf(nil, `{"v":1,"kind":"refusal","id":"%032d","t":"2026-01-02T15:04:05.000000Z","seq":%d,"tenant":"tenant:victim","decision":"refused","tag":"AAAAAAAAAAAAAAAAAAAAAA"}`, i, i+1)))
	}
	return leaves
}

// TestNothingIsSignedOverAForgedPruned: who can write into the log's folder and has no
// key gets nothing signed over a history that he has made up. The hashes of the log's
// own tree, which the file pruned holds too, prove themselves; of whom the removed
// records were does not follow from them.
func TestNothingIsSignedOverAForgedPruned(t *testing.T) {
	retained := func(t *testing.T) (dir, vkey string) {
		dir, vkey, clock, h := oldLog(t, 10, 2)
		l := openLog(t, dir, retaining(clock, 5*time.Hour))
		removed(t, dir, l, h, clock, 5*time.Hour)
		mustAppend(t, l, intent("new"), outcome("new"))
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		return dir, vkey
	}
	section := func(text, tenant string) (begin, end int) {
		begin = strings.Index(text, `{"tenant":{"name":"`+tenant+`"`)
		if begin < 0 {
			t.Fatalf("no tenant %s in %s", tenant, text)
		}
		end = len(text)
		if next := strings.Index(text[begin+1:], `{"tenant":`); next >= 0 {
			end = begin + 1 + next
		}
		return begin, end
	}
	whole := func(t *testing.T, alone bool) (dir, vkey, pruned string) {
		dir, vkey, _, _ = oldLog(t, 3, 2)
		var leaves []tlog.Hash
		if err := receipts.Scan(filepath.Join(dir, "receipts"), func(s receipts.Stored) error {
			leaves = append(leaves, tlog.RecordHash(s.Line))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		origin, _, _ := strings.Cut(vkey, "+")
		folder := filepath.Join(dir, "receipts")
		n := len(leaves)
		pruned = fmt.Sprintf("{\"pruned\":{\"v\":1,\"log\":\"%s\",\"before\":%d,\"no_tenant\":4}}\n", origin, n) + leftOuts(leaves) +
			fmt.Sprintf("{\"tenant\":{\"name\":\"tenant:victim\",\"size\":%d,\"last\":%d,\"waits\":false}}\n", n-4, n) + leftOuts(invented(n-4))
		if !alone {
			newest, err := receipts.NewestCheckpoint(folder)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range segments(t, dir) {
				os.Remove(s)
			}
			header := fmt.Sprintf("{\"segment\":{\"v\":1,\"log\":\"%s\",\"first\":%d,\"vkey\":\"%s\"}}\n", origin, n, vkey)
			write(t, filepath.Join(folder, fmt.Sprintf("%020d.jsonl", n)), append([]byte(header), checkpointLineOf(newest)...))
		}
		return dir, vkey, pruned
	}
	for name, forge := range map[string]func(t *testing.T) (dir, vkey, pruned, tenant string){
		"another tenant in the place of one": func(t *testing.T) (string, string, string, string) {
			dir, vkey := retained(t)
			text := string(read(t, filepath.Join(dir, "receipts", "pruned")))
			begin, end := section(text, "key:3")
			size := strings.Count(text[begin:end], "left_out") // its one or two records stand each in a line
			made := strings.Replace(text[begin:strings.Index(text[begin:], "\n")+begin+1], "key:3", "key:victim", 1) + leftOuts(invented(size))
			// in the order of the names
			text = text[:begin] + text[end:] + made
			return dir, vkey, text, "key:victim"
		},
		"a tenant by another name": func(t *testing.T) (string, string, string, string) {
			dir, vkey := retained(t)
			text := string(read(t, filepath.Join(dir, "receipts", "pruned")))
			return dir, vkey, strings.Replace(text, `"key:3"`, `"key:31"`, 1), "key:3"
		},
		"another hash of a tenant's": func(t *testing.T) (string, string, string, string) {
			dir, vkey := retained(t)
			text := string(read(t, filepath.Join(dir, "receipts", "pruned")))
			begin, _ := section(text, "key:b")
			at := strings.Index(text[begin:], `"root":"`) + begin + len(`"root":"`)
			was := text[at : at+44]
			return dir, vkey, strings.Replace(text, was, base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32)), 1), "key:b"
		},
		"all entries, before the last checkpoint": func(t *testing.T) (string, string, string, string) {
			dir, vkey, pruned := whole(t, false)
			return dir, vkey, pruned, "tenant:victim"
		},
		"all entries, and the segments as they were": func(t *testing.T) (string, string, string, string) {
			dir, vkey, pruned := whole(t, true)
			return dir, vkey, pruned, "tenant:victim"
		},
		"all entries, and no segment": func(t *testing.T) (string, string, string, string) {
			dir, vkey, pruned := whole(t, false)
			os.Remove(segments(t, dir)[0])
			return dir, vkey, pruned, "tenant:victim"
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, vkey, pruned, tenant := forge(t)
			write(t, filepath.Join(dir, "receipts", "pruned"), []byte(pruned))
			if n, err := receipts.PrunedBefore(filepath.Join(dir, "receipts")); err != nil || n == 0 {
				t.Fatalf("the forgery is not spelled right: %v\n%s", err, pruned)
			}
			out := filepath.Join(t.TempDir(), "export")
			_, err := receipts.Export(context.Background(), dir, tenant, nil, out, nil)
			if err == nil || !strings.Contains(err.Error(), "the file pruned") {
				t.Errorf("exported: %v", err)
			}
			if _, err := os.Stat(out); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("there is an export: %v", err)
			}
			for _, id := range []string{"new", "b-9", "b-2"} {
				if found, err := receipts.FindIn(filepath.Join(dir, "receipts"), id); err != nil || len(found) == 0 {
					continue
				}
				if proofs, err := receipts.ProveIn(dir, id, nil); err == nil || !strings.Contains(err.Error(), "the file pruned") {
					t.Errorf("%s proven: %d, %v", id, len(proofs), err)
				}
			}
			if r := verdict(t, dir, vkey, nil); r.Verdict != receipts.Broken {
				t.Errorf("verified: %s: %s", r.Verdict, r.Why)
			}
			if l, err := reopen(dir); err == nil {
				l.Close()
				t.Error("a start takes it")
			}
		})
	}
}
