package gateway_test

import (
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/identity"
)

// between is a clock at whose next reading something else happens first, once it is set.
type between struct {
	clockwork.Clock
	happens atomic.Pointer[func()]
}

func (b *between) Now() time.Time {
	if f := b.happens.Swap(nil); f != nil {
		(*f)()
	}
	return b.Clock.Now()
}

// TestAKeyIsOfTheViewThatTheCallCameUnder: of keys that change between the moment in
// which a call comes and that in which its key is looked for, those of before hold.
func TestAKeyIsOfTheViewThatTheCallCameUnder(t *testing.T) {
	clock := &between{}
	w := setup{clock: func(fake *clockwork.FakeClock) clockwork.Clock { clock.Clock = fake; return clock }}.world(t, func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, "{}") }, roomy("k"))
	text, digest := identity.NewKey()
	late := roomy("late")
	late.Digest = digest
	w.keys["late"] = text.Reveal()
	come := func() { w.use(worldRegistry, append(roomyLike(w, "k"), late)...) }
	clock.happens.Store(&come)
	w.act("late", plainCall("tools", "")).want(t, "a key that came while the call did", 401, "unauthenticated", "")
	w.act("late", plainCall("tools", "")).want(t, "and with the next call", 200, "", "")
}
