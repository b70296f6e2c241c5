package shared

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/jonboulle/clockwork"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"agentgw/internal/ratelimit"
	"agentgw/internal/ratelimit/redisstore"
)

// Keys and tenants of the calls, under limits that refuse nobody.
const (
	keys    = 1000
	tenants = 100
	slots   = 1 << 20
	rate    = 1_000_000
)

// contender makes calls, from many goroutines.
type contender struct {
	name string
	call func(i int) error
}

// calls are what a limiter is asked for.
type calls struct {
	limiter *ratelimit.Shared
	keys    []*ratelimit.Ref
	to      []ratelimit.Admission
	clock   ratelimit.Clock
}

func newCalls(store ratelimit.Store, replica string) *calls {
	c := &calls{clock: ratelimit.NewClock(clockwork.NewRealClock())}
	c.limiter = ratelimit.NewShared(ratelimit.NewLocal(ratelimit.Options{}), store, ratelimit.SharedOptions{Replica: replica, Away: ratelimit.PolicyClosed})
	limit := ratelimit.Limit{Interval: int64(time.Second / rate), Burst: rate}
	service := ratelimit.NewService("tools", 0)
	for i := range keys {
		key := "key-" + strconv.Itoa(i)
		c.keys = append(c.keys, ratelimit.NewRef(ratelimit.Registered, ratelimit.KindKey, key, limit))
		c.to = append(c.to, ratelimit.Admission{
			Tenant:  ratelimit.NewTenant(ratelimit.Registered, "tenant-"+strconv.Itoa(i%tenants), limit, slots),
			Bucket:  ratelimit.NewRef(ratelimit.Registered, ratelimit.KindService, ratelimit.ServiceBucket(key, "tools"), limit),
			Service: service,
		})
	}
	return c
}

func (c *calls) call(i int) error {
	i %= keys
	now := c.clock.Nanos()
	t, v := c.limiter.Admit(c.limiter.Defer(c.keys[i], now), c.to[i], now)
	if v.Outcome != ratelimit.Admitted {
		return fmt.Errorf("a call was not admitted: %v", v.Outcome)
	}
	t.Release()
	return nil
}

// batched is the gateway's own way.
func batched(t *testing.T, url string) contender {
	store, err := redisstore.Open(redisstore.Options{URL: url, Clock: clockwork.NewRealClock(), Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return contender{"agentgw", newCalls(store, "batched").call}
}

// pool runs the same jobs, by the same script, through go-redis' pool as it comes: one
// EVALSHA for each, and
// who tells something waits for it.
type pool struct{ client *redis.Client }

func pooled(t *testing.T, url string, size int) contender {
	p := pool{connect(t, url, size)}
	if err := p.client.ScriptLoad(context.Background(), program.Text).Err(); err != nil {
		t.Fatal(err)
	}
	return contender{fmt.Sprintf("the same scripts, go-redis' pool of %d", size), newCalls(p, fmt.Sprint("pooled", size)).call}
}

func (p pool) Ask(job ratelimit.Job) (ratelimit.Answer, error) {
	var numbers []byte
	number := func(n int64) { numbers = binary.LittleEndian.AppendUint64(numbers, math.Float64bits(float64(n))) }
	args := make([]any, 1, 1+len(job.Args))
	for _, a := range job.Args {
		if text, ok := a.(string); ok {
			args = append(args, text)
		}
	}
	for _, n := range []int{int(job.Script.Number), len(job.Keys), len(job.Args) + 1 - len(args), len(args) - 1, 0} {
		number(int64(n))
	}
	for _, a := range job.Args {
		switch a := a.(type) {
		case int:
			number(int64(a))
		case int64:
			number(a)
		}
	}
	args[0] = numbers
	reply, err := p.client.EvalSha(context.Background(), program.SHA1, job.Keys, args...).StringSlice()
	if err != nil {
		return ratelimit.Answer{}, err
	}
	values := make([]int64, len(reply[0])/8-2) // after how many they are, and the time
	for i := range values {
		values[i] = int64(math.Float64frombits(binary.LittleEndian.Uint64([]byte(reply[0][16+8*i:]))))
	}
	return ratelimit.Answer{Number: answers.Add(1), Values: values}, nil
}

var (
	answers atomic.Int64
	program = ratelimit.NewProgram("")
)

func (p pool) Tell(job ratelimit.Job) { _, _ = p.Ask(job) }

// rated is two buckets by redis_rate, and a lease by a script.
func rated(t *testing.T, url string, size int) contender {
	client := connect(t, url, size)
	limiter := redis_rate.NewLimiter(client)
	limit := redis_rate.Limit{Rate: rate, Burst: rate, Period: time.Second}
	lease := redis.NewScript(`local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[1]) then
	return 0
end
redis.call('ZADD', KEYS[1], now + 10000, ARGV[2])
redis.call('PEXPIRE', KEYS[1], 20000)
return 1`)
	var next atomic.Int64
	return contender{fmt.Sprintf("two redis_rate calls and a lease, pool of %d", size), func(i int) error {
		i %= keys
		ctx, tenant := context.Background(), strconv.Itoa(i%tenants)
		for _, bucket := range []string{"key-" + strconv.Itoa(i), "tenant-" + tenant} {
			if r, err := limiter.Allow(ctx, bucket, limit); err != nil || r.Allowed != 1 {
				return errors.Join(err, errors.New("redis_rate did not allow"))
			}
		}
		set, id := "slots-"+tenant, strconv.FormatInt(next.Add(1), 36)
		if n, err := lease.Run(ctx, client, []string{set}, slots, id).Int(); err != nil || n != 1 {
			return errors.Join(err, errors.New("no lease"))
		}
		return client.ZRem(ctx, set, id).Err()
	}}
}

func connect(t *testing.T, url string, size int) *redis.Client {
	o, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	o.PoolSize = size
	o.PoolTimeout = time.Minute
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	return client
}
