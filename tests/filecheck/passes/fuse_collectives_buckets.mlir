// RUN: rhino-opt %s -p fuse-collectives --verify-equivalence | filecheck %s
// RUN: rhino-opt %s -p 'fuse-collectives{bytes=64}' --verify-equivalence | filecheck %s --check-prefix=SMALL
// RUN: rhino-opt %s -p 'fuse-collectives{bytes=0}' | filecheck %s --check-prefix=NONE

// %early and %g1 become one over a flat buffer where %g1 stood, and what uses %early moves behind it. %g2 depends on
// %early and begins the next bucket.
// CHECK-LABEL: func.func @main
// CHECK-NOT: hlo.mul
// CHECK: %[[F:.*]] = hlo.concatenate %[[A:.*]], %[[B:.*]] dim 0
// CHECK-NEXT: %[[S:.*]] = dist.all_reduce sum %[[F]] over ["a"] {reason = "combines 2: early; one", bytes = 64 : i64} : tensor<8xf64>
// CHECK-NEXT: hlo.slice %[[S]] start [0] limit [4]
// CHECK: hlo.mul
// CHECK: dist.all_reduce sum %{{.*}} over ["a"] {reason = "combines 2: two; three", bytes = 112 : i64} : tensor<14xf64>
// CHECK-NOT: dist.
// CHECK: func.return

// With 64 bytes there is room for the first two only.
// SMALL: dist.all_reduce sum %{{.*}} over ["a"] {reason = "combines 2: early; one", bytes = 64 : i64} : tensor<8xf64>
// SMALL: dist.all_reduce sum %q over ["a"] {reason = "two", bytes = 32
// SMALL: dist.all_reduce sum %{{.*}} over ["a"] {reason = "three", bytes = 80 : i64}

// NONE-COUNT-4: dist.all_reduce
dist.mesh @mesh = <["a"=2]>
func.func @main(%x: tensor<4xf64> {dist.layout = #dist.layout<[{}] partial {"a": sum}>, dist.global_type = tensor<4xf64>},
                %y: tensor<2x5xf64> {dist.layout = #dist.layout<[{}, {}] partial {"a": sum}>, dist.global_type = tensor<2x5xf64>})
    -> (tensor<4xf64> {dist.layout = #dist.layout<[{}]>, dist.global_type = tensor<4xf64>}, tensor<4xf64> {dist.layout = #dist.layout<[{}]>, dist.global_type = tensor<4xf64>}, tensor<2x5xf64> {dist.layout = #dist.layout<[{}, {}]>, dist.global_type = tensor<2x5xf64>}) {
  %early = dist.all_reduce sum %x over ["a"] {reason = "early", bytes = 32} : tensor<4xf64>
  %s = hlo.mul %early, %early : tensor<4xf64>
  %p = hlo.negate %x : tensor<4xf64>
  %g1 = dist.all_reduce sum %p over ["a"] {reason = "one", bytes = 32} : tensor<4xf64>
  %q = hlo.add %early, %x : tensor<4xf64>
  %g2 = dist.all_reduce sum %q over ["a"] {reason = "two", bytes = 32} : tensor<4xf64>
  %g3 = dist.all_reduce sum %y over ["a"] {reason = "three", bytes = 80} : tensor<2x5xf64>
  %u1 = hlo.mul %g1, %s : tensor<4xf64>
  %u2 = hlo.sub %g2, %s : tensor<4xf64>
  func.return %u1, %u2, %g3 : tensor<4xf64>, tensor<4xf64>, tensor<2x5xf64>
}
