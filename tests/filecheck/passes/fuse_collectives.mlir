// RUN: rhino-opt %s -p 'fuse-collectives{bytes=0}' --split-input-file --verify-equivalence | filecheck %s
// RUN: rhino-opt %s -p 'fuse-collectives{bytes=0},fuse-collectives{bytes=0}' --split-input-file | filecheck %s
// RUN: not rhino-opt %s -p 'fuse-collectives{bytes=-1}' --split-input-file 2>&1 | filecheck %s --check-prefix=NEGATIVE

// NEGATIVE: fuse-collectives: bytes is -1

// Equal collectives become one, whatever their reasons; unused ones go.
// CHECK-LABEL: func.func @main
// CHECK-NEXT: %[[A:.*]] = dist.all_reduce sum %x over ["a"] {reason = "first"}
// CHECK-NEXT: %[[B:.*]] = hlo.mul %[[A]], %[[A]]
// CHECK-NEXT: func.return %[[B]]
dist.mesh @mesh = <["a"=2, "b"=2]>
func.func @main(%x: tensor<4xf64> {dist.layout = #dist.layout<[{}] partial {"a": sum}>, dist.global_type = tensor<4xf64>}) -> (tensor<4xf64> {dist.layout = #dist.layout<[{}]>, dist.global_type = tensor<4xf64>}) {
  %0 = dist.all_reduce sum %x over ["a"] {reason = "first"} : tensor<4xf64>
  %1 = dist.all_reduce sum %x over ["a"] {reason = "second"} : tensor<4xf64>
  %dead = dist.all_gather %x dim 0 over ["b"] : tensor<4xf64> -> tensor<8xf64>
  %2 = hlo.mul %0, %1 : tensor<4xf64>
  func.return %2 : tensor<4xf64>
}

// -----
// shard(all_reduce) is a reduce_scatter, and an all_reduce over what is left.
// CHECK-LABEL: func.func @main
// CHECK-NEXT: %[[A:.*]] = dist.reduce_scatter sum %x dim 0 over ["a"] {reason = "r", bytes = 16 : i64} : tensor<4xf64> -> tensor<2xf64>
// CHECK-NEXT: %[[B:.*]] = dist.all_reduce sum %[[A]] over ["b"] {reason = "r", bytes = 16 : i64} : tensor<2xf64>
// CHECK-NEXT: func.return %[[B]]
dist.mesh @mesh = <["a"=2, "b"=2]>
func.func @main(%x: tensor<4xf64> {dist.layout = #dist.layout<[{}] partial {"a": sum, "b": sum}>, dist.global_type = tensor<4xf64>}) -> (tensor<2xf64> {dist.layout = #dist.layout<[{"a"}]>, dist.global_type = tensor<4xf64>}) {
  %0 = dist.all_reduce sum %x over ["a", "b"] {reason = "r"} : tensor<4xf64>
  %1 = dist.shard %0 dim 0 over ["a"] : tensor<4xf64> -> tensor<2xf64>
  func.return %1 : tensor<2xf64>
}

// -----
// The sum of two all_reduces is the all_reduce of the sum; a sum of maxima is not.
// CHECK-LABEL: func.func @main
// CHECK-NEXT: %[[S:.*]] = hlo.sub %x, %y
// CHECK-NEXT: %[[T:.*]] = dist.all_reduce sum %[[S]] over ["a"] {reason = "p; q", bytes = 32 : i64} : tensor<4xf64>
// CHECK-NEXT: %[[U:.*]] = dist.all_reduce max %z over ["a"]
// CHECK-NEXT: %[[V:.*]] = dist.all_reduce max %w over ["a"]
// CHECK-NEXT: %[[W:.*]] = hlo.add %[[U]], %[[V]]
// CHECK-NEXT: func.return %[[T]], %[[W]]
dist.mesh @mesh = <["a"=2]>
func.func @main(%x: tensor<4xf64> {dist.layout = #dist.layout<[{}] partial {"a": sum}>, dist.global_type = tensor<4xf64>},
                %y: tensor<4xf64> {dist.layout = #dist.layout<[{}] partial {"a": sum}>, dist.global_type = tensor<4xf64>},
                %z: tensor<4xf64> {dist.layout = #dist.layout<[{}] partial {"a": max}>, dist.global_type = tensor<4xf64>},
                %w: tensor<4xf64> {dist.layout = #dist.layout<[{}] partial {"a": max}>, dist.global_type = tensor<4xf64>})
    -> (tensor<4xf64> {dist.layout = #dist.layout<[{}]>, dist.global_type = tensor<4xf64>}, tensor<4xf64> {dist.layout = #dist.layout<[{}]>, dist.global_type = tensor<4xf64>}) {
  %0 = dist.all_reduce sum %x over ["a"] {reason = "p"} : tensor<4xf64>
  %1 = dist.all_reduce sum %y over ["a"] {reason = "q"} : tensor<4xf64>
  %2 = hlo.sub %0, %1 : tensor<4xf64>
  %3 = dist.all_reduce max %z over ["a"] : tensor<4xf64>
  %4 = dist.all_reduce max %w over ["a"] : tensor<4xf64>
  %5 = hlo.add %3, %4 : tensor<4xf64>
  func.return %2, %5 : tensor<4xf64>, tensor<4xf64>
}

// -----
// Neighbouring digits are gathered at once, in the order in which they stand; others are not.
// CHECK-LABEL: func.func @main
// CHECK-NEXT: %[[A:.*]] = dist.all_gather %x dim 0 over ["a", "b"] {reason = "minor; major", bytes = 48 : i64} : tensor<2xf64> -> tensor<8xf64>
// CHECK-NEXT: %[[B:.*]] = dist.all_gather %y dim 0 over ["b", "a"] period 4 {bytes = 96 : i64} : tensor<4xf64> -> tensor<16xf64>
// CHECK-NEXT: %[[C:.*]] = dist.all_gather %z dim 0 over ["a"] period 2 : tensor<4xf64> -> tensor<8xf64>
// CHECK-NEXT: %[[D:.*]] = dist.all_gather %[[C]] dim 0 over ["b"] : tensor<8xf64> -> tensor<16xf64>
dist.mesh @mesh = <["a"=2, "b"=2]>
func.func @main(%x: tensor<2xf64> {dist.layout = #dist.layout<[{"a", "b"}]>, dist.global_type = tensor<8xf64>},
                %y: tensor<4xf64> {dist.layout = #dist.layout<[{"b":4, "a":2}]>, dist.global_type = tensor<16xf64>},
                %z: tensor<4xf64> {dist.layout = #dist.layout<[{"b", "a":2}]>, dist.global_type = tensor<16xf64>})
    -> (tensor<8xf64> {dist.layout = #dist.layout<[{}]>, dist.global_type = tensor<8xf64>}, tensor<16xf64> {dist.layout = #dist.layout<[{}]>, dist.global_type = tensor<16xf64>}, tensor<16xf64> {dist.layout = #dist.layout<[{}]>, dist.global_type = tensor<16xf64>}) {
  %0 = dist.all_gather %x dim 0 over ["b"] {reason = "minor"} : tensor<2xf64> -> tensor<4xf64>
  %1 = dist.all_gather %0 dim 0 over ["a"] {reason = "major"} : tensor<4xf64> -> tensor<8xf64>
  %2 = dist.all_gather %y dim 0 over ["b"] period 2 : tensor<4xf64> -> tensor<8xf64>
  %3 = dist.all_gather %2 dim 0 over ["a"] period 2 : tensor<8xf64> -> tensor<16xf64>
  %4 = dist.all_gather %z dim 0 over ["a"] period 2 : tensor<4xf64> -> tensor<8xf64>
  %5 = dist.all_gather %4 dim 0 over ["b"] : tensor<8xf64> -> tensor<16xf64>
  func.return %1, %3, %5 : tensor<8xf64>, tensor<16xf64>, tensor<16xf64>
}

// -----
// What undoes the op before it goes away.
// CHECK-LABEL: func.func @main
// CHECK-NEXT: func.return %x, %x, %x
dist.mesh @mesh = <["a"=2]>
func.func @main(%x: tensor<4x4xf64> {dist.layout = #dist.layout<[{"a"}, {}]>, dist.global_type = tensor<8x4xf64>})
    -> (tensor<4x4xf64> {dist.layout = #dist.layout<[{"a"}, {}]>, dist.global_type = tensor<8x4xf64>}, tensor<4x4xf64> {dist.layout = #dist.layout<[{"a"}, {}]>, dist.global_type = tensor<8x4xf64>}, tensor<4x4xf64> {dist.layout = #dist.layout<[{"a"}, {}]>, dist.global_type = tensor<8x4xf64>}) {
  %0 = dist.all_gather %x dim 0 over ["a"] period 4 : tensor<4x4xf64> -> tensor<8x4xf64>
  %1 = dist.shard %0 dim 0 over ["a"] period 4 : tensor<8x4xf64> -> tensor<4x4xf64>
  %2 = dist.all_to_all %x cut 1 join 0 period 4 over ["a"] : tensor<4x4xf64> -> tensor<8x2xf64>
  %3 = dist.all_to_all %2 cut 0 period 4 join 1 over ["a"] : tensor<8x2xf64> -> tensor<4x4xf64>
  %4 = dist.permute %x over ["a"] to [1, 0] : tensor<4x4xf64>
  %5 = dist.permute %4 over ["a"] to [1, 0] : tensor<4x4xf64>
  func.return %1, %3, %5 : tensor<4x4xf64>, tensor<4x4xf64>, tensor<4x4xf64>
}

// -----
// A sum that is needed whole and in parts is reduced once.
// CHECK-LABEL: func.func @main
// CHECK-NEXT: %[[A:.*]] = dist.all_reduce sum %x over ["a"] {reason = "whole; part", bytes = 32 : i64} : tensor<4xf64>
// CHECK-NEXT: %[[B:.*]] = dist.shard %[[A]] dim 0 over ["a"] period 2 : tensor<4xf64> -> tensor<2xf64>
// CHECK-NEXT: func.return %[[B]], %[[A]]
dist.mesh @mesh = <["a"=2]>
func.func @main(%x: tensor<4xf64> {dist.layout = #dist.layout<[{}] partial {"a": sum}>, dist.global_type = tensor<4xf64>})
    -> (tensor<2xf64> {dist.layout = #dist.layout<[{"a":2}]>, dist.global_type = tensor<4xf64>}, tensor<4xf64> {dist.layout = #dist.layout<[{}]>, dist.global_type = tensor<4xf64>}) {
  %0 = dist.reduce_scatter sum %x dim 0 over ["a"] period 2 {reason = "part"} : tensor<4xf64> -> tensor<2xf64>
  %1 = dist.all_reduce sum %x over ["a"] {reason = "whole"} : tensor<4xf64>
  func.return %0, %1 : tensor<2xf64>, tensor<4xf64>
}
