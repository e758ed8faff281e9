// Oracle for quantities: answers with what Kubernetes' own k8s.io/apimachinery/pkg/api/resource says.
//
// Generates pairs of texts from a seed, one JSON object per line on stdout:
//
//	{"a", "b",                      the texts
//	 "error",                       why a is no quantity; then nothing else follows
//	 "text", "format",              a in canonical form, its suffix family
//	 "sign", "int64",               int64 is left out where AsInt64 has none
//	 "float", "value", "milli",     the float as its bits in hexadecimal
//	 "compare", "sum", "difference"}  with b, left out if b is no quantity
//
// usage: go run oracle.go SEED COUNT
package main

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand"
	"os"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

type answer struct {
	A          string  `json:"a"`
	B          string  `json:"b"`
	Error      string  `json:"error,omitempty"`
	Text       string  `json:"text,omitempty"`
	Format     string  `json:"format,omitempty"`
	Sign       int     `json:"sign"`
	Int64      *int64  `json:"int64,omitempty"`
	Float      string  `json:"float,omitempty"`
	Value      *int64  `json:"value,omitempty"`
	Milli      *int64  `json:"milli,omitempty"`
	Compare    *int    `json:"compare,omitempty"`
	Sum        string  `json:"sum,omitempty"`
	Difference string  `json:"difference,omitempty"`
}

func canonical(q resource.Quantity) string {
	number, suffix := q.CanonicalizeBytes(nil)
	return string(number) + string(suffix)
}

func digits(r *rand.Rand, most int) string {
	n := r.Intn(most + 1)
	var b strings.Builder
	for range n {
		b.WriteByte("0000123456789999"[r.Intn(16)])
	}
	return b.String()
}

func text(r *rand.Rand) string {
	sign := []string{"", "", "", "", "-", "+"}[r.Intn(6)]
	number := digits(r, []int{1, 2, 4, 9, 18, 19, 25}[r.Intn(7)])
	if r.Intn(3) == 0 {
		number += "." + digits(r, []int{1, 2, 3, 9, 12}[r.Intn(5)])
	}
	suffixes := []string{"", "", "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3", "E6", "e-3", "e+9", "e10", "e-10", "e25", "e-30", "K", "ki", "mi", "e", "e1.5", " ", "GB", "1"}
	return sign + number + suffixes[r.Intn(len(suffixes))]
}

func main() {
	seed, err := strconv.ParseInt(os.Args[1], 10, 64)
	must(err)
	count, err := strconv.Atoi(os.Args[2])
	must(err)
	r := rand.New(rand.NewSource(seed))
	encoder := json.NewEncoder(os.Stdout)
	for range count {
		ans := answer{A: text(r), B: text(r)}
		q, err := resource.ParseQuantity(ans.A)
		if err != nil {
			ans.Error = err.Error()
			must(encoder.Encode(ans))
			continue
		}
		ans.Text, ans.Format, ans.Sign = canonical(q.DeepCopy()), string(q.Format), q.Sign()
		if v, ok := q.AsInt64(); ok {
			ans.Int64 = &v
		}
		ans.Float = fmt.Sprintf("%016x", math.Float64bits(q.AsApproximateFloat64()))
		// Value and MilliValue overflow silently: only where they do not.
		limit := resource.NewQuantity(math.MaxInt64/1000-1, resource.DecimalSI)
		minus := resource.NewQuantity(-math.MaxInt64/1000+1, resource.DecimalSI)
		if c := q.DeepCopy(); c.Cmp(*limit) < 0 && c.Cmp(*minus) > 0 && c.Sign() >= 0 {
			value, milli := q.Value(), q.MilliValue()
			ans.Value, ans.Milli = &value, &milli
		}
		if other, err := resource.ParseQuantity(ans.B); err == nil {
			left, right := q.DeepCopy(), other.DeepCopy()
			compare := left.Cmp(right)
			ans.Compare = &compare
			sum := q.DeepCopy()
			sum.Add(other.DeepCopy())
			ans.Sum = canonical(sum)
			difference := q.DeepCopy()
			difference.Sub(other.DeepCopy())
			ans.Difference = canonical(difference)
		}
		must(encoder.Encode(ans))
	}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "oracle:", err)
		os.Exit(1)
	}
}
