package store

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// usesAtOnce is how many uses one statement takes: thousands in a statement each would
// keep all others who write waiting for as many round trips.
const usesAtOnce = 500

// SecretsUsed notes when secrets were used last, by their digests: those of keys of
// the registry file too. Of two times the later counts, whichever process brought it.
// Nobody has to act on it: the generation stays.
func (s *Store) SecretsUsed(ctx context.Context, used map[[32]byte]time.Time) error {
	if len(used) == 0 {
		return nil
	}
	digests := slices.SortedFunc(maps.Keys(used), func(a, b [32]byte) int { return bytes.Compare(a[:], b[:]) })
	return s.transact(ctx, func(ctx context.Context, tx conn) error {
		for some := range slices.Chunk(digests, usesAtOnce) {
			var values []string
			var args []any
			for _, digest := range some {
				values = append(values, fmt.Sprintf("($%d, $%d)", len(args)+1, len(args)+2))
				args = append(args, digest[:], nanos(used[digest]))
			}
			if _, err := tx.exec(ctx, `INSERT INTO secret_uses (digest, used_at) VALUES `+strings.Join(values, ", ")+`
				ON CONFLICT (digest) DO UPDATE SET used_at = excluded.used_at WHERE secret_uses.used_at < excluded.used_at`, args...); err != nil {
				return err
			}
		}
		return nil
	})
}

// LastUses returns when each secret was used last, by digest, as far as it was noted.
func (s *Store) LastUses(ctx context.Context) (map[[32]byte]time.Time, error) {
	uses := map[[32]byte]time.Time{}
	_, err := list(ctx, s, func(row scan) (none struct{}, err error) {
		var digest []byte
		var when int64
		if err := row(&digest, &when); err != nil {
			return none, err
		}
		if len(digest) != 32 {
			return none, fmt.Errorf("a digest of %d bytes among the uses", len(digest))
		}
		uses[[32]byte(digest)] = at(when)
		return none, nil
	}, `SELECT digest, used_at FROM secret_uses`)
	if err != nil {
		return nil, err
	}
	return uses, nil
}
