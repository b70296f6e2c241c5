package ratelimit

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
)

// What replicas share has these names in the store. The number is that of the format:
// a version that keeps anything in another way has another one, so that two versions
// that run side by side share nothing rather than misread each other.
//
// What stands in braces is what a cluster places a key by. A key may act for many
// tenants, so its bucket cannot lie with theirs.
const storePrefix = "agw2:"

func bucketName(r *Ref) string { return nameOf(r, "") }

func freeName(r *Ref) string { return nameOf(r, ":free") }

func slotsName(r *Ref) string { return nameOf(r, ":slots") }

func nameOf(r *Ref, what string) string {
	return storePrefix + "{" + r.table.String() + ":" + strconv.Itoa(int(r.kind)) + ":" + plain(r.partition) + "}" + what
}

func serviceName(s *Service) string { return storePrefix + "{service:" + plain(s.name) + "}:slots" }

func windowName(r *Rule, partition string) string {
	id := r.id
	return storePrefix + "{rule:" + digest(id.name, id.of, strconv.FormatInt(id.length, 10), partition) + "}"
}

// bytesName is the window of the bytes that flow through a caller's tunnels.
func bytesName(caller string) string { return storePrefix + "{bytes:" + plain(caller) + "}" }

const replicasName = storePrefix + "{replicas}"

// nameless is for a job that needs no name: nothing is kept by it.
const nameless = storePrefix + "{none}"

// plain is a name as it is, if that is short and of harmless characters, as nearly all
// are; callers choose some of them. Any other is its digest. No name of one sort is one
// of the other.
func plain(name string) string {
	if len(name) > 128 {
		return "~" + digest(name)
	}
	for i := range len(name) {
		if !harmless[name[i]] {
			return "~" + digest(name)
		}
	}
	return name
}

var harmless = func() (is [256]bool) {
	for _, c := range []byte("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:/@#") {
		is[c] = true
	}
	return is
}()

// digest is one name for several, whatever bytes they hold.
func digest(names ...string) string {
	h := sha256.New()
	for _, n := range names {
		h.Write([]byte(strconv.Itoa(len(n)) + ":" + n))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
