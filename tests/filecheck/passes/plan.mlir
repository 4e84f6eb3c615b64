// RUN: rhino-opt %s -p 'plan{cluster=2 template=dp}' --verify-equivalence | filecheck %s
// RUN: rhino-opt %s -p 'plan{cluster=2 mesh=tp=2 template=megatron},spmd,fuse-collectives' --verify-equivalence | filecheck %s --check-prefix=TP
// RUN: rhino-opt %s -p 'plan{cluster=4xH100}' --verify-equivalence | filecheck %s --check-prefix=AUTO
// RUN: not rhino-opt %s -p 'plan{cluster=3 template=dp pad=false}' 2>&1 | filecheck %s --check-prefix=BATCH
// RUN: not rhino-opt %s -p 'plan{cluster=4 mesh=dp=3}' 2>&1 | filecheck %s --check-prefix=MESH

// The batch is split, the weight is whole, and its gradient is summed once.
// CHECK: builtin.module attributes {rhino.program = "{{[0-9a-f]+}}"
// CHECK: dist.mesh @mesh = <["dp"=2]>
// CHECK: func.func @main(%w: tensor<4x8xf64> {{.*}}dist.layout = #dist.layout<[{}, {}]>}, %x: tensor<8x4xf64> {{.*}}dist.layout = #dist.layout<[{"dp"}, {}]>}
// CHECK: hlo.dot_general %x, %w {{.*}} {dist.layout = [#dist.layout<[{"dp"}, {}]>]}
// CHECK: hlo.dot_general %x, {{.*}} {dist.layout = [#dist.layout<[{}, {}] partial {"dp": sum}>]}
// CHECK: dist.reshard {{.*}} to #dist.layout<[{}, {}]>

// The weight is split in place, and never moves.
// TP: dist.mesh @mesh = <["tp"=2]>
// TP: func.func @main(%w: tensor<{{2x8|4x4}}xf64>
// TP-NOT: dist.all_gather %w

// A matrix of 32 elements is not worth any communication.
// AUTO: dist.mesh @mesh
// AUTO-NOT: dist.reshard

// BATCH: a batch of 8 cannot be divided over 3 devices
// BATCH: remedy: use a batch that is a multiple of 3
// MESH: mesh dp=3 has 3 devices, but cluster 1x4xCPU has 4
func.func @main(%w: tensor<4x8xf64> {rhino.name = "w", rhino.role = "parameter"},
                %x: tensor<8x4xf64> {rhino.name = "x", rhino.role = "input"})
    -> (tensor<f64> {rhino.name = "loss", rhino.role = "loss"},
        tensor<4x8xf64> {rhino.name = "w", rhino.role = "parameter", rhino.alias = 0 : i64}) {
  %y = hlo.dot_general %x, %w batch [] x [] contract [1] x [0] : (tensor<8x4xf64>, tensor<4x8xf64>) -> tensor<8x8xf64>
  %loss = hlo.reduce "sum" %y dims [0, 1] : tensor<8x8xf64> -> tensor<f64>
  %one = hlo.constant dense<1.0> : tensor<8x8xf64>
  %g = hlo.dot_general %x, %one batch [] x [] contract [0] x [0] : (tensor<8x4xf64>, tensor<8x8xf64>) -> tensor<4x8xf64>
  %new = hlo.sub %w, %g : tensor<4x8xf64>
  func.return %loss, %new : tensor<f64>, tensor<4x8xf64>
}
