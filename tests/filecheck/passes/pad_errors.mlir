// RUN: not rhino-opt %s -p pad 2>&1 | filecheck %s --check-prefix=NOTHING
// RUN: not rhino-opt %s -p 'pad{extents="6-8"}' 2>&1 | filecheck %s --check-prefix=READ
// RUN: not rhino-opt %s -p 'pad{extents="6:5"}' 2>&1 | filecheck %s --check-prefix=SHRINK

// NOTHING: error: pass pad: pad needs multiple= or extents=
// READ: error: pass pad: cannot read extents '6-8'
// SHRINK: error: pass pad: extent 6 cannot grow to 5
func.func @main(%x: tensor<6xf32>) -> tensor<6xf32> {
  func.return %x : tensor<6xf32>
}
